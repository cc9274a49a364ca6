"""Check the failures about a node and its peers, and which of them need a replacement."""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from bootstrap.cluster.membership import Member
from bootstrap.files.paths import under_root
from bootstrap.health import checks as health
from bootstrap.health.checks import HealthCheckFailure, HealthChecks, answers_ssh
from launcher.runner import main as runner
from trainer.check import node_devices

MASTER = Member(node_index=1, instance_id="i-a", address="10.0.0.1", node_type="master", host_key="ssh-ed25519 AAAA")
WORKER = Member(node_index=2, instance_id="i-b", address="10.0.0.2", node_type="worker", host_key="ssh-ed25519 BBBB")
NAMES = {
    "deeplearning-master": "10.0.0.1",
    "deeplearning-worker1": "10.0.0.1",
    "deeplearning-worker2": "10.0.0.2",
}


def resolve(name: str) -> str:
    try:
        return NAMES[name]
    except KeyError as error:
        raise socket.gaierror(f"no address of {name}") from error


def checks(
    root: Path, *, expected: int | None = None, gpus: int | None = 0, answers: Callable[[str], bool] = lambda _: True
) -> HealthChecks:
    return HealthChecks(
        root=root, expected_gpus=expected, count_gpus=lambda: gpus, resolve=resolve, answers_ssh=answers
    )


@pytest.mark.parametrize(
    ("expected", "gpus", "what"),
    [
        (4, 4, None),
        (4, 3, "gpus 3/4"),
        (4, 0, "gpus 0/4"),
        (0, 0, None),
        (0, 1, "gpus 1/0"),
        (None, 0, None),
        (None, 8, None),
    ],
)
def test_gpus_are_as_many_as_the_type_has(tmp_path: Path, expected: int | None, gpus: int, what: str | None) -> None:
    wanted = None if what is None else HealthCheckFailure(reason=what, needs_replacement=True)
    assert checks(tmp_path, expected=expected, gpus=gpus).check_machine() == wanted
    assert checks(tmp_path, expected=expected, gpus=gpus).check_before_ready([MASTER]) == wanted


def test_uncountable_gpus_are_no_defect_of_the_machine(tmp_path: Path) -> None:
    wanted = HealthCheckFailure(reason="gpus ?/4", needs_replacement=False)
    assert checks(tmp_path, expected=4, gpus=None).check_machine() == wanted
    assert checks(tmp_path, expected=4, gpus=None).check_before_ready([MASTER]) == wanted


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    directory = under_root(tmp_path, "/opt/dlami/nvme")
    directory.mkdir(parents=True)
    return directory


@pytest.mark.usefixtures("scratch")
def test_scratch_that_works_is_left_as_it_was(tmp_path: Path, scratch: Path) -> None:
    (scratch / "data").write_text("somebody's")
    assert checks(tmp_path).check_machine() is None
    assert [path.name for path in scratch.iterdir()] == ["data"]


@pytest.mark.usefixtures("scratch")
@pytest.mark.parametrize(
    ("number", "what", "defect"),
    [
        (errno.EROFS, "scratch /opt/dlami/nvme EROFS", True),
        (errno.EIO, "scratch /opt/dlami/nvme EIO", True),
        (errno.ENOSPC, "scratch /opt/dlami/nvme ENOSPC", False),
        (errno.EDQUOT, "scratch /opt/dlami/nvme EDQUOT", False),
        (None, "scratch /opt/dlami/nvme failed", False),
    ],
)
def test_unwritable_scratch_is_a_defect_unless_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None, what: str, defect: bool
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(number, "on purpose") if number else OSError("on purpose")

    monkeypatch.setattr(os, "fsync", fail)
    assert checks(tmp_path).check_machine() == HealthCheckFailure(reason=what, needs_replacement=defect)


@pytest.mark.usefixtures("scratch")
def test_scratch_that_loses_what_was_written_is_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(descriptor: int) -> None:
        os.pwrite(descriptor, b"something else", 0)

    monkeypatch.setattr(os, "fsync", lose)
    assert checks(tmp_path).check_machine() == HealthCheckFailure(
        reason="scratch /opt/dlami/nvme EIO", needs_replacement=True
    )


def test_missing_scratch_mount_is_not_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "on purpose")

    monkeypatch.setattr(os, "fsync", fail)
    assert checks(tmp_path).check_machine() is None


@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.parametrize("address", [None, "10.9.9.9"])
def test_unresolvable_peer_is_not_a_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, address: str | None
) -> None:
    assert checks(tmp_path).check_before_ready([MASTER, WORKER]) is None
    if address is None:
        monkeypatch.delitem(NAMES, name)
    else:
        monkeypatch.setitem(NAMES, name, address)
    assert checks(tmp_path).check_before_ready([MASTER, WORKER]) == HealthCheckFailure(
        reason=f"name {name}", needs_replacement=False
    )
    assert checks(tmp_path).check_machine() is None


@pytest.mark.parametrize(("silent", "failure"), [("10.0.0.1", "deeplearning-master silent"), ("10.0.0.2", None)])
def test_silent_master_is_not_a_defect(tmp_path: Path, silent: str, failure: str | None) -> None:
    found = checks(tmp_path, answers=lambda address: address != silent).check_before_ready([WORKER, MASTER])
    assert found == (None if failure is None else HealthCheckFailure(reason=failure, needs_replacement=False))


def test_own_defect_is_reported_before_a_peer_is_blamed(tmp_path: Path) -> None:
    broken = checks(tmp_path, expected=2, gpus=1, answers=lambda _: False)
    assert broken.check_before_ready([MASTER]) == HealthCheckFailure(reason="gpus 1/2", needs_replacement=True)


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Listen on a port of this machine in place of sshd's."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(60.0)
        monkeypatch.setattr(health, "SSH_PORT", server.getsockname()[1])
        monkeypatch.setattr(health, "ANSWER_TIMEOUT_S", 60.0)
        yield server


@pytest.mark.parametrize(
    ("greeting", "answers"), [(b"SSH-2.0-OpenSSH_9.2\r\n", True), (b"HTTP/1.1 400\r\n", False), (b"", False)]
)
def test_ssh_server_introduces_itself(listener: socket.socket, greeting: bytes, answers: bool) -> None:
    def greet() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(greeting)

    thread = Thread(target=greet)
    thread.start()
    assert answers_ssh("127.0.0.1") == answers
    thread.join()


@pytest.mark.usefixtures("listener")
def test_machine_that_hangs_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel accepts the connection, but no server answers.
    monkeypatch.setattr(health, "ANSWER_TIMEOUT_S", 0.1)
    assert not answers_ssh("127.0.0.1")


def test_machine_without_ssh_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unlistened:
        unlistened.bind(("127.0.0.1", 0))
        monkeypatch.setattr(health, "SSH_PORT", unlistened.getsockname()[1])
        assert not answers_ssh("127.0.0.1")


@pytest.mark.parametrize(
    ("expected", "devices", "failure"),
    [
        (0, 0, None),
        (4, 4, None),
        (4, 3, HealthCheckFailure(reason="efa 3/4", needs_replacement=True)),
        # The driver is missing, and a replacement would lack it too.
        (4, 0, HealthCheckFailure(reason="efa 0/4", needs_replacement=False)),
    ],
)
def test_node_has_the_adapters_that_it_was_launched_with(
    tmp_path: Path, expected: int, devices: int, failure: HealthCheckFailure | None
) -> None:
    for index in range(devices):
        device = tmp_path / f"sys/class/infiniband/rdmap{index}s6/device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to("../../bus/pci/drivers/efa")
    # The adapter of an NVSwitch.
    switch = tmp_path / "sys/class/infiniband/mlx5_0/device"
    switch.mkdir(parents=True)
    (switch / "driver").symlink_to("../../bus/pci/drivers/mlx5_core")
    node = replace(checks(tmp_path), expected_efa=expected)
    assert node.check_machine() == failure
    assert node.check_before_ready([MASTER]) == failure


def test_all_packages_find_adapters_in_the_same_place() -> None:
    assert (f"/{health.EFA_DEVICES}", health.EFA_DRIVER) == (runner.EFA_DEVICES, runner.EFA_DRIVER)
    assert (node_devices.EFA_DEVICES, node_devices.EFA_DRIVER) == (health.EFA_DEVICES, health.EFA_DRIVER)
