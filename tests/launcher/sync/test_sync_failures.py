"""Test failing syncs: no rank starts, and the reason names node and cause."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.loopback_cluster import ADDRESSES, SHORT_HEARTBEAT_TIMEOUT_S, copy_launcher, wait_until_gone
from tests.launcher.sync.cluster_with_homes import ClusterWithHomes

FIRST, SECOND, THIRD = ADDRESSES
LARGE = 64 << 20
"""Size of a file in bytes, of which every node of a chain receives a part early."""


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """Mount a file system of 1 MB."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], check=True, timeout=10)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True, timeout=10)


def fail(cluster: ClusterWithHomes, directory: str = "code", *options: str) -> str:
    """Launch a job that must not start; return its last line."""
    result = cluster.run("--sync-dst-dir", directory, *options, "echo started", cwd=cluster.source)
    assert (result.code, result.stdout) == (1, b"")
    assert b"Traceback" not in result.stderr
    return result.reason


def test_nothing_starts_if_one_node_cannot_replace_a_directory(cluster: ClusterWithHomes) -> None:
    cluster.write("train.py", "old")
    assert cluster.run("--sync-dst-dir", "code", "true", cwd=cluster.source).code == 0
    cluster.write("train.py", "new and longer")
    place = cluster.homes[THIRD] / "code"
    (place / "train.py").unlink()
    (place / "train.py").mkdir()
    (place / "train.py/checkpoint").write_text("c")
    assert fail(cluster) == (
        f"launch: nothing started: 1 of 3 nodes: {THIRD}: {place}/train.py: "
        "is a directory, and a file at the source: Directory not empty"
    )


def test_nothing_starts_if_the_destination_is_a_file(cluster: ClusterWithHomes) -> None:
    for address in (SECOND, THIRD):
        (cluster.homes[address] / "code").write_text("")
    assert fail(cluster) == "launch: nothing started: 2 of 3 nodes: " + "; ".join(
        f"{address}: {cluster.homes[address]}/code: is not a directory" for address in (SECOND, THIRD)
    )


def test_nothing_starts_if_the_destination_is_not_writable(cluster: ClusterWithHomes) -> None:
    cluster.write("a", "a")
    (cluster.homes[SECOND] / "code").symlink_to("/proc")
    reason = fail(cluster)
    assert reason.startswith(f"launch: nothing started: 1 of 3 nodes: {SECOND}: {cluster.homes[SECOND]}/code")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")
def test_nothing_starts_if_a_disk_has_no_room(cluster: ClusterWithHomes) -> None:
    (cluster.source / "large").write_bytes(bytes(3 << 20))
    with small_disk(cluster.homes[THIRD] / "code"):
        reason = fail(cluster)
    place = cluster.homes[THIRD] / "code"
    assert reason.startswith(
        f"launch: nothing started: 1 of 3 nodes: {THIRD}: {place}: not enough space: 3145728 bytes"
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")
def test_disk_that_fills_up_during_the_sync_is_reported_with_its_node(cluster: ClusterWithHomes) -> None:
    """Use up the inodes, which the check of free space does not see; the node in the middle of the chain reports it."""
    for number in range(2000):
        cluster.write(f"{number}", "x")
    place = cluster.homes[SECOND] / "code"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=100", "tmpfs", str(place)], check=True, timeout=10)
    try:
        reason = fail(cluster)
    finally:
        subprocess.run(["umount", str(place)], check=True, timeout=10)
    assert reason.startswith(f"launch: nothing started: 1 of 3 nodes: {SECOND}: {place}/")
    assert reason.endswith("No space left on device")


@pytest.fixture(scope="session")
def stalling_launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the launcher; its copy stops in the middle of a large file, and never sends the rest."""
    copy = copy_launcher(tmp_path_factory.mktemp("stalling_launcher"))
    stall(copy)
    return copy


def stall(launcher: Path) -> None:
    """Let a copy of the launcher send the first half of LARGE, and then only heartbeats."""
    sender = launcher / "sync" / "sender.py"
    text, sent = sender.read_text(), "        progress.advance(len(block))\n"
    assert text.count(sent) == 1
    wait = f"        await asyncio.wait([until], timeout=1000 * (progress.sent > {LARGE // 2}))\n"
    sender.write_text(text.replace(sent, sent + wait))


def test_nothing_starts_if_a_node_dies_while_it_receives(cluster: ClusterWithHomes, stalling_launcher: Path) -> None:
    (cluster.source / "large").write_bytes(os.urandom(LARGE))
    options = ("--sync-dst-dir", "code", "echo started")
    with replace(cluster, launcher=stalling_launcher).start(*options, cwd=cluster.source) as launcher:
        wait_for_part(cluster.homes[SECOND], launcher)
        send_signal(runners(cluster.homes[SECOND]), signal.SIGKILL)
        stdout, stderr = launcher.communicate(timeout=60)
    assert (launcher.returncode, stdout) == (1, b"")
    assert stderr.decode().splitlines()[-1].startswith(f"launch: nothing started: 1 of 3 nodes: {SECOND}: connection")
    cluster.write("large", "small")
    assert cluster.run(*options, cwd=cluster.source).code == 0
    assert [[path.name for path in (home / "code").iterdir()] for home in cluster.homes.values()] == [["large"]] * 3


def test_nothing_starts_if_a_node_hangs_while_it_receives(
    cluster: ClusterWithHomes, short_timeout_launcher: Path, tmp_path: Path
) -> None:
    (cluster.source / "large").write_bytes(os.urandom(LARGE))
    launcher_copy = Path(shutil.copytree(short_timeout_launcher.parent, tmp_path / "copy")) / "launcher"
    stall(launcher_copy)
    short_timeout_cluster = replace(cluster, launcher=launcher_copy)
    with short_timeout_cluster.start("--sync-dst-dir", "code", "echo started", cwd=cluster.source) as launcher:
        wait_for_part(cluster.homes[SECOND], launcher)
        frozen = runners(cluster.homes[SECOND])
        try:
            send_signal(frozen, signal.SIGSTOP)
            stdout, stderr = launcher.communicate(timeout=60)
        finally:
            send_signal(frozen, signal.SIGCONT)
    assert (launcher.returncode, stdout) == (1, b"")
    reason = f"launch: nothing started: 1 of 3 nodes: {SECOND}: silent for {SHORT_HEARTBEAT_TIMEOUT_S:g} s"
    assert stderr.decode().splitlines()[-1] == reason
    wait_until_gone(frozen, seconds=60)


def wait_for_part(home: Path, launcher: "subprocess.Popen[bytes]") -> None:
    """Wait until a node has started to write a file."""
    until = time.monotonic() + 60
    while not list(home.glob("code/.launch-part-*")):
        assert launcher.poll() is None
        assert time.monotonic() < until, "no file arrives"
        time.sleep(0.01)


def test_launcher_killed_during_the_sync_leaves_no_process(cluster: ClusterWithHomes, stalling_launcher: Path) -> None:
    (cluster.source / "large").write_bytes(os.urandom(LARGE))
    with replace(cluster, launcher=stalling_launcher).start(
        "--sync-dst-dir", "code", "true", cwd=cluster.source
    ) as launcher:
        wait_for_part(cluster.homes[THIRD], launcher)
        left = [pid for home in cluster.homes.values() for pid in runners(home)]
        launcher.kill()
    assert left
    wait_until_gone(left, seconds=60)


def send_signal(pids: list[int], number: int) -> None:
    """Signal processes; one may have ended since it was listed, because killing a runner ends its children."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def runners(home: Path) -> list[int]:
    """Return the runner processes of a node."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and is_runner(entry, home)]


def is_runner(entry: Path, home: Path) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
        environment = (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(b"launcher/runner/" in word for word in words[1:]) and f"HOME={home}".encode() in environment


def test_unreadable_source_is_a_usage_error(cluster: ClusterWithHomes) -> None:
    (cluster.source / ".launchignore").write_bytes(b"\xff\xfe")
    result = cluster.run("--sync-dst-dir", "code", "true", cwd=cluster.source)
    assert (result.code, result.reason) == (2, f"launch: cannot read {cluster.source}/.launchignore: not a text file")


def test_destination_above_the_source_is_a_usage_error(cluster: ClusterWithHomes) -> None:
    result = cluster.run("--sync-dst-dir", str(cluster.directory), "true", cwd=cluster.source)
    assert result.code == 2
    assert result.reason.startswith("launch: --sync-dst-dir must not be above the current directory, got '/")


def test_second_sync_to_the_same_directory_is_refused(cluster: ClusterWithHomes, stalling_launcher: Path) -> None:
    (cluster.source / "large").write_bytes(os.urandom(LARGE))
    with replace(cluster, launcher=stalling_launcher).start(
        "--sync-dst-dir", "code", "true", cwd=cluster.source
    ) as first:
        wait_for_part(cluster.homes[SECOND], first)
        reason = fail(cluster)
        first.kill()
    assert f"{SECOND}: {cluster.homes[SECOND]}/code: another launch is sending files to it" in reason


def test_sync_that_takes_too_long_starts_nothing(cluster: ClusterWithHomes) -> None:
    cluster.write_program("python3", "exec sleep 60")
    result = cluster.run("--sync-s3", "s3://bucket/p", "data", "--sync-timeout", "1", "echo started", hosts=[FIRST])
    assert (result.code, result.stdout) == (1, b"")
    assert result.reason.startswith("launch: nothing started")
    assert FIRST in result.reason
    assert "(--sync-timeout)" in result.reason


def test_restart_whose_sync_fails_is_repeated(cluster: ClusterWithHomes) -> None:
    (cluster.source / "train.sh").write_text("[ $TORCHELASTIC_RESTART_COUNT -ge 2 ]\n")
    swap = "[ $RANK != 1 ] || { cd; mv code away; touch code; exit 1; }"
    block = f"[ $TORCHELASTIC_RESTART_COUNT != 0 ] || {{ {swap}; sleep 1000; }}; sh train.sh"
    heard = []
    # Any number of restarts may fail before the node is repaired.
    with cluster.start("--max-restarts", "1000", "--sync-dst-dir", "code", block, cwd=cluster.source) as launcher:
        assert launcher.stderr is not None
        for line in iter(launcher.stderr.readline, b""):
            heard.append(line.decode())
            if "nothing started" in heard[-1]:
                (cluster.homes[SECOND] / "code").unlink(missing_ok=True)
        assert launcher.wait(60) == 0, heard
    assert any(f"nothing started: 1 of 3 nodes: {SECOND}: " in line for line in heard), heard
