"""Test jobs that copy their files to the nodes."""

import os
import re
from pathlib import Path

import pytest

from launcher.sync.manifest import link_target
from tests.launcher.loopback_cluster import ADDRESSES
from tests.launcher.sync.cluster_with_homes import ClusterWithHomes, tree

SENT = re.compile(rb"launch: (\d+) files?, ([\d.]+) MB, sent to (\d) nodes? in [\d.]+ s\n")


def launch_with_sync(
    cluster: ClusterWithHomes, *options: str, command: str = "true", directory: str = "code"
) -> tuple[int, str]:
    """Launch a job; return exit code and standard error."""
    result = cluster.run("--sync-dst-dir", directory, *options, command, cwd=cluster.source)
    return result.code, result.stderr.decode()


def sent_counts(output: str) -> tuple[int, int] | None:
    """Return the numbers of files and nodes that the launcher reports as sent."""
    match = SENT.search(output.encode())
    return (int(match[1]), int(match[3])) if match else None


def test_command_runs_in_a_copy_of_the_current_directory_on_every_node(cluster: ClusterWithHomes) -> None:
    cluster.write("train.py", "print('trained')")
    cluster.write("pack age/deep/data.txt", "words")
    result = cluster.run("--sync-dst-dir", "my code", "pwd; python train.py", cwd=cluster.source)
    assert result.code == 0, result.stderr
    places = [f"{host} [0] {cluster.homes[host]}/my code" for host in ADDRESSES]
    assert result.lines == sorted([*places, *(f"{host} [0] trained" for host in ADDRESSES)])
    assert SENT.fullmatch(result.stderr)
    for home in cluster.homes.values():
        assert tree(home / "my code") == tree(cluster.source)


def test_modes_times_and_links_are_copied(cluster: ClusterWithHomes) -> None:
    cluster.write("run.sh", "#!/bin/sh\necho ran", mode=0o755)
    secret = cluster.write("secret", "s", mode=0o600)
    os.utime(secret, ns=(1, 1234567890123456789))
    (cluster.source / "empty/below").mkdir(parents=True)
    (cluster.source / "link").symlink_to("run.sh")
    (cluster.source / "nowhere").symlink_to("/no/such/place/")
    (cluster.source / "ünï\udcff\n").write_text("odd name")
    os.mkfifo(cluster.source / "pipe")
    code, output = launch_with_sync(cluster, command="./link")
    assert code == 0, output
    for home in cluster.homes.values():
        copy = home / "code"
        assert {path.name for path in copy.iterdir()} == {path.name for path in cluster.source.iterdir()} - {"pipe"}
        assert link_target(copy / "nowhere") == "/no/such/place/"
        assert (copy / "link").readlink() == Path("run.sh")
        assert (copy / "empty/below").is_dir()
        assert [oct((copy / name).stat().st_mode & 0o777) for name in ("run.sh", "secret")] == ["0o755", "0o600"]
        assert (copy / "secret").stat().st_mtime_ns == 1234567890123456789


def test_second_sync_sends_only_changes(cluster: ClusterWithHomes) -> None:
    for name in "abc":
        cluster.write(name, name)
    assert sent_counts(launch_with_sync(cluster)[1]) == (3, 3)
    before = (cluster.far[0] / "code/a").stat().st_ino
    assert launch_with_sync(cluster) == (0, "")
    cluster.write("b", "new")
    assert sent_counts(launch_with_sync(cluster)[1]) == (1, 3)
    (cluster.far[0] / "code/c").unlink()
    assert sent_counts(launch_with_sync(cluster)[1]) == (1, 1)
    assert (cluster.far[0] / "code/a").stat().st_ino == before
    assert [tree(home / "code") for home in cluster.homes.values()] == [{"a": "a", "b": "new", "c": "c"}] * 3


def test_each_node_receives_only_missing_files(cluster: ClusterWithHomes) -> None:
    for name in "abcd":
        cluster.write(name, name * 1000)
    launch_with_sync(cluster)
    for host, lost in zip(ADDRESSES, ("ab", "c", "ad"), strict=True):
        for name in lost:
            (cluster.homes[host] / "code" / name).unlink()
    assert sent_counts(launch_with_sync(cluster)[1]) == (4, 3)
    assert all(tree(home / "code") == tree(cluster.source) for home in cluster.homes.values())


def test_changed_mode_sends_no_file(cluster: ClusterWithHomes) -> None:
    script = cluster.write("run", "x")
    launch_with_sync(cluster)
    script.chmod(0o755)
    assert launch_with_sync(cluster) == (0, "")
    assert (cluster.far[1] / "code/run").stat().st_mode & 0o777 == 0o755


def test_files_that_a_job_made_or_changed_are_not_deleted(cluster: ClusterWithHomes) -> None:
    cluster.write("old/module.py", "old")
    cluster.write("notes", "as sent")
    cluster.write("kept", "k")
    launch_with_sync(cluster, command="echo mine >> notes; echo c > old/checkpoint; mkdir runs; touch runs/1")
    for name in ("old/module.py", "notes"):
        (cluster.source / name).unlink()
    (cluster.source / "old").rmdir()
    assert launch_with_sync(cluster)[0] == 0
    expected = {"kept": "k", "notes": "as sentmine\n", "old": "", "old/checkpoint": "c\n", "runs": "", "runs/1": ""}
    assert [tree(home / "code") for home in cluster.homes.values()] == [expected] * 3


def test_files_from_before_the_first_sync_are_not_deleted(cluster: ClusterWithHomes) -> None:
    (cluster.far[0] / "code").mkdir()
    (cluster.far[0] / "code/theirs").write_text("t")
    cluster.write("a", "a")
    launch_with_sync(cluster)
    cluster.write("b", "b")
    launch_with_sync(cluster)
    assert tree(cluster.far[0] / "code") == {"a": "a", "b": "b", "theirs": "t"}


def test_file_directory_and_link_can_replace_each_other(cluster: ClusterWithHomes) -> None:
    cluster.write("one", "file")
    cluster.write("two/below", "b")
    (cluster.source / "three").symlink_to("one")
    launch_with_sync(cluster)
    (cluster.source / "one").unlink()
    (cluster.source / "two/below").unlink()
    (cluster.source / "two").rmdir()
    (cluster.source / "three").unlink()
    cluster.write("one/below", "b")
    (cluster.source / "two").symlink_to("one")
    cluster.write("three", "file")
    code, output = launch_with_sync(cluster)
    assert code == 0, output
    assert [tree(home / "code") for home in cluster.homes.values()] == [tree(cluster.source)] * 3


def test_excluded_files_are_neither_sent_nor_deleted(cluster: ClusterWithHomes) -> None:
    for name in (".git/config", "src/__pycache__/x.pyc", "src/x.py", "big.pt", "data/1", ".launchignore"):
        cluster.write(name, "*.pt\n")
    launch_with_sync(cluster)
    expected = {".launchignore", "data", "data/1", "src", "src/x.py"}
    assert [set(tree(home / "code")) for home in cluster.homes.values()] == [expected] * 3
    cluster.write("src/x.py", "new")
    launch_with_sync(cluster, "--sync-exclude", "data/")
    assert (cluster.far[0] / "code/data/1").exists()
    (cluster.source / "data/1").unlink()
    launch_with_sync(cluster)
    assert not (cluster.far[0] / "code/data/1").exists()


def test_destination_may_be_the_source_on_its_own_node(cluster: ClusterWithHomes) -> None:
    cluster.write("a", "a")
    inode = (cluster.source / "a").stat().st_ino
    code, output = launch_with_sync(cluster, directory=str(cluster.source), command="pwd")
    assert (code, output) == (0, "")
    assert (cluster.source / "a").stat().st_ino == inode


def test_destination_within_the_current_directory_is_not_sent_along(cluster: ClusterWithHomes) -> None:
    home = cluster.homes[ADDRESSES[0]]
    (home / "a").write_text("a")
    for _ in range(2):
        result = cluster.run("--sync-dst-dir", "~/copy", "true", cwd=home)
        assert result.code == 0, result.stderr
    assert [(path / "copy").is_dir() for path in cluster.homes.values()] == [True] * 3
    assert [sorted(tree(path / "copy")) for path in cluster.homes.values()] == [[".local", ".local/state", "a"]] * 3


def test_local_job_runs_in_its_copy(cluster: ClusterWithHomes) -> None:
    cluster.write("a", "a")
    result = cluster.run("--sync-dst-dir", "code", "cat a", hosts=["127.0.0.1"], cwd=cluster.source)
    assert result.lines == ["127.0.0.1 [0] a"]


def test_large_file_arrives_complete_on_all_nodes(cluster: ClusterWithHomes) -> None:
    content = os.urandom(1 << 16) * 320
    (cluster.source / "large").write_bytes(content)
    cluster.write("small", "s")
    assert sent_counts(launch_with_sync(cluster)[1]) == (2, 3)
    assert all((home / "code/large").read_bytes() == content for home in cluster.homes.values())


def test_file_changed_during_the_sync_arrives_in_its_last_state(cluster: ClusterWithHomes) -> None:
    path = cluster.write("growing", "x" * 1000)
    # The launcher takes its time between scanning the source and sending it.
    once = cluster.directory / "once"
    slow = cluster.write_program(
        "openssl",
        f'[ -e {once} ] || echo end >> {path}; touch {once}; exec /usr/bin/openssl "$@"',
    )
    assert slow.exists()
    code, output = launch_with_sync(cluster)
    assert code == 0, output
    assert [(home / "code/growing").read_text() for home in cluster.far] == ["x" * 1000 + "end\n"] * 2


def test_nothing_starts_while_a_file_keeps_changing(cluster: ClusterWithHomes) -> None:
    path = cluster.write("log", "x")
    cluster.write_program("openssl", f'echo more >> {path}; exec /usr/bin/openssl "$@"')
    code, output = launch_with_sync(cluster, command="touch started")
    assert code == 1
    assert output.splitlines()[-1] == f"launch: nothing started: {path} keeps changing; exclude it (--sync-exclude)"
    assert not list(cluster.far[0].glob("code/*"))
    assert launch_with_sync(cluster, "--sync-exclude", "log")[0] == 0


@pytest.mark.parametrize("directory", ["~", "~/"])
def test_relative_destination_is_in_the_nodes_home_directory(cluster: ClusterWithHomes, directory: str) -> None:
    cluster.write("a", "a")
    result = cluster.run("--sync-dst-dir", directory, "pwd", cwd=cluster.source)
    assert result.lines == [f"{host} [0] {cluster.homes[host]}" for host in ADDRESSES]
