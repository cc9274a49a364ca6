"""Test how ranks are read from the environment."""

import pytest

from trainer.distributed.world import World
from trainer.errors import UsageError

LAUNCHED = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "deeplearning-master",
    "MASTER_PORT": "29500",
}


def test_world_is_read_from_the_launchers_variables() -> None:
    world = World.from_environment(LAUNCHED)
    assert world == World(rank=5, world_size=8, local_rank=1, local_world_size=4)
    assert world.num_nodes == 2
    assert str(world) == "5/8"


def test_job_and_restarts_are_read_from_the_environment() -> None:
    again = World.from_environment(LAUNCHED | {"TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_RUN_ID": "j"})
    assert (again.job_id, again.restart_count) == ("j", 2)
    assert World.from_environment(LAUNCHED).job_id == ""


def test_without_a_launcher_the_world_has_one_process() -> None:
    assert World.from_environment({}) == World(rank=0, world_size=1, local_rank=0, local_world_size=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"RANK": "8"}, "RANK must be from 0 to 7, got 8"),
        ({"RANK": "-1"}, "RANK must be a whole number of at least 0, got '-1'"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE must be a whole number of at least 1, got '0'"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be a whole number of at least 1, got 'two'"),
        ({"LOCAL_RANK": "4"}, "LOCAL_RANK must be from 0 to 3, got 4"),
        ({"LOCAL_WORLD_SIZE": "3"}, "WORLD_SIZE must be a multiple of LOCAL_WORLD_SIZE, got 8 and 3"),
        ({"MASTER_PORT": "ssh"}, "MASTER_PORT must be a whole number of at least 1, got 'ssh'"),
        ({"MASTER_ADDR": "", "MASTER_PORT": ""}, "WORLD_SIZE is 8, but MASTER_ADDR and MASTER_PORT is not set"),
    ],
)
def test_wrong_environment_is_reported(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        World.from_environment(LAUNCHED | wrong)
    assert str(caught.value) == message
