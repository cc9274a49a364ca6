"""Test the sum around the ring: equal on all ranks, and failing in time when a rank is lost."""

import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.trainer.distributed.rings import LOOPBACK, TIMEOUT_S, joined, on_all
from trainer.distributed.reduce.reducers import Ring
from trainer.distributed.reduce.ring_rendezvous import Address, own_host
from trainer.distributed.world import World


@pytest.fixture
def pair() -> Iterator[list[Ring]]:
    with joined(2) as rings:
        yield rings


def reduce_all(rings: list[Ring], vectors: list[np.ndarray[Any, Any]]) -> None:
    on_all(len(rings), lambda rank: rings[rank].all_reduce(vectors[rank], timeout_s=TIMEOUT_S))


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("length", [1, 7, 1_000_003])
def test_all_ranks_get_the_same_sum(size: int, length: int) -> None:
    # The sizes differ greatly, so that another order of additions gives another sum.
    draws = [np.random.default_rng(rank).standard_normal(length).astype(np.float32) * 10**rank for rank in range(size)]
    rounds = []
    with joined(size) as rings:
        for _ in range(2):
            vectors = [draw.copy() for draw in draws]
            reduce_all(rings, vectors)
            rounds.append([vector.tobytes() for vector in vectors])
    exact = np.sum(np.array(draws, np.float64), axis=0)
    assert np.allclose(vectors[0], exact, rtol=1e-5, atol=1e-3 * 10**size / 100)
    assert len({*rounds[0], *rounds[1]}) == 1


def test_ring_sums_every_data_type(pair: list[Ring]) -> None:
    vectors = [np.array([1.0, 2**53]), np.array([2.0, 1])]
    reduce_all(pair, vectors)
    assert vectors[0].tolist() == vectors[1].tolist() == [3, 2**53]
    numbers = [np.array([2**40]), np.array([1])]
    reduce_all(pair, numbers)
    assert numbers[0].tolist() == [2**40 + 1]


def test_empty_vector_needs_no_communication(pair: list[Ring]) -> None:
    pair[0].all_reduce(np.zeros(0, np.float32), timeout_s=TIMEOUT_S)


def test_ended_neighbor_raises_connection_error(pair: list[Ring]) -> None:
    pair[1].close()
    with pytest.raises(ConnectionError):
        pair[0].all_reduce(np.zeros(10**7, np.float32), timeout_s=TIMEOUT_S)


def test_silent_neighbor_raises_timeout_error(pair: list[Ring]) -> None:
    with pytest.raises(TimeoutError, match="timed out"):
        pair[0].all_reduce(np.zeros(8, np.float32), timeout_s=0.01)


def test_connection_without_the_key_is_closed() -> None:
    strangers: list[socket.socket] = []

    def intrude(addresses: list[Address]) -> None:
        for host, port, key in addresses:
            stranger = socket.create_connection((host, port), timeout=TIMEOUT_S)
            stranger.sendall(bytes(len(key)))
            strangers.append(stranger)

    vectors = [np.ones(4, np.float32) for _ in range(2)]
    with joined(2, before=intrude) as rings:
        reduce_all(rings, vectors)
    assert vectors[0].tolist() == vectors[1].tolist() == [2] * 4
    for stranger in strangers:
        stranger.close()


@pytest.mark.parametrize(
    ("rank", "environment", "host"),
    [
        (1, LOOPBACK, "127.0.0.1"),
        (0, LOOPBACK | {"MASTER_ADDR": "127.0.0.2"}, "127.0.0.1"),
        (0, {"MASTER_ADDR": "127.0.0.2", "MASTER_PORT": "29500"}, "127.0.0.2"),
        (1, {"MASTER_ADDR": "127.0.0.2", "MASTER_PORT": "29500"}, "127.0.0.1"),
        (1, LOOPBACK | {"GLOO_SOCKET_IFNAME": "no-such-one"}, "127.0.0.1"),
    ],
)
def test_own_host_is_the_chosen_interface_or_the_one_towards_rank_0(
    rank: int, environment: dict[str, str], host: str
) -> None:
    assert own_host(World(rank=rank, world_size=2), environment) == host
