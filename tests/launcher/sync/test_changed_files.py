"""Test that a sync overwrites nothing that was changed on a node."""

import io
from pathlib import Path
from typing import Any

import pytest

from launcher.runner.requests.server import RequestServer
from launcher.runner.sync.byte_queue import ByteQueue
from launcher.runner.sync.destination import Destination
from launcher.runner.sync.relay import relay
from launcher.sync.ignore import Ignore
from launcher.sync.manifest import scan
from launcher.sync.request import KEEP, OVERWRITE, REFUSE
from launcher.sync.stream import SourceStream
from tests.launcher.loopback_cluster import ADDRESSES
from tests.launcher.sync.cluster_with_homes import ClusterWithHomes

NOTHING = Ignore([])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/result").write_text("sent")
    (tmp_path / "source/train.py").write_text("1")
    return tmp_path / "source"


def copied(source: Path, home: Path, *, interrupted: bool = False) -> list[str]:
    """Copy the source to ``copy`` in `home`; return what was changed there, and what was overwritten."""
    manifest = scan(source, ignore=NOTHING)
    copy = Destination(home / "copy", manifest, ignore=NOTHING, home=home)
    try:
        changed = copy.changed()
        needed = copy.prepare()
        if not interrupted:
            stream = SourceStream(source, manifest, sorted(needed))
            relay(io.BytesIO(b"".join(iter(stream.next_block, b""))), None, destination=copy, needed=needed)
    finally:
        copy.release()
    return changed


def answer(source: Path, directory: Path, on_changed: str) -> dict[str, Any]:
    """Ask a node to compare its copy."""
    server = RequestServer(ByteQueue(on_room=lambda: None))
    request: dict[str, Any] = {
        "operation": "compare",
        "directory": str(directory),
        "manifest": scan(source, ignore=NOTHING).pack(),
        "patterns": [],
        "on_changed": on_changed,
        "source": None,
    }
    try:
        return server.answer(request)
    finally:
        server.close()


def test_files_changed_since_the_last_sync_are_reported(source: Path, tmp_path: Path) -> None:
    assert copied(source, tmp_path) == []
    (source / "train.py").write_text("22")
    assert copied(source, tmp_path) == []
    (tmp_path / "copy/result").write_text("newer, of a job")
    assert copied(source, tmp_path) == ["result"]


def test_file_that_no_sync_wrote_counts_as_changed(source: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/result").write_text("a job's")
    (source / "link").symlink_to("result")
    (tmp_path / "copy/link").write_text("a job's too")
    assert copied(source, tmp_path) == ["link", "result"]


def test_files_from_before_an_interrupted_sync_count_as_unchanged(source: Path, tmp_path: Path) -> None:
    copied(source, tmp_path)
    for content in ("22", "333"):
        (source / "train.py").write_text(content)
        assert copied(source, tmp_path, interrupted=True) == []
    assert copied(source, tmp_path) == []
    assert (tmp_path / "copy/train.py").read_text() == "333"


def test_node_refuses_keeps_or_overwrites_changed_files(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    copied(source, tmp_path)
    result = tmp_path / "copy/result"
    result.write_text("newer, of a job")
    (source / "train.py").unlink()
    assert answer(source, tmp_path / "copy", REFUSE) == {"needed": [], "port": 0, "changed": ["result"]}
    assert (tmp_path / "copy/train.py").exists()
    assert answer(source, tmp_path / "copy", KEEP) == {"needed": [], "port": 0}
    assert not (tmp_path / "copy/train.py").exists()
    assert answer(source, tmp_path / "copy", OVERWRITE)["needed"] == [[0, 1]]
    assert result.read_text() == "newer, of a job"


def test_job_starts_over_a_newer_result_only_on_request(cluster: ClusterWithHomes) -> None:
    cluster.write("runs/result", "pulled")
    # On its restart, the job finds what it wrote.
    job = "[ $RANK != 0 ] || grep -q newer runs/result || { echo newer > runs/result; exit 1; }"
    assert cluster.run("--max-restarts", "1", "--sync-dst-dir", "code", job, cwd=cluster.source).code == 0
    refused = cluster.run("--sync-dst-dir", "code", "true", cwd=cluster.source)
    assert (refused.code, refused.reason) == (
        1,
        "launch: nothing started: the copy to code would overwrite files that were changed there: "
        f"'runs/result' on {ADDRESSES[0]}; pull them into this directory, exclude them in .launchignore, or give "
        "--sync-overwrite",
    )
    assert (cluster.homes[ADDRESSES[0]] / "code/runs/result").read_text() == "newer\n"
    assert cluster.run("--sync-dst-dir", "code", "--sync-exclude", "runs", "true", cwd=cluster.source).code == 0
    assert cluster.run("--sync-dst-dir", "code", "--sync-overwrite", "true", cwd=cluster.source).code == 0
    assert (cluster.homes[ADDRESSES[0]] / "code/runs/result").read_text() == "pulled"


def test_results_in_the_source_directory_stay_on_each_node(cluster: ClusterWithHomes) -> None:
    source = cluster.homes[ADDRESSES[0]] / "code"
    source.mkdir()
    (source / "train.py").write_text("1")
    # The sizes differ between ranks, because files of the same size and time would count as equal.
    job = "mkdir -p out; seq 0 $RANK >> out/log; [ $RANK != 0 ] || cat out/log > out/best"
    for times in (1, 2, 3):
        started = cluster.run("-n", "3", "--sync-dst-dir", "code", job, cwd=source)
        assert started.code == 0, started.stderr
        logs = [(home / "code/out/log").read_text() for home in cluster.homes.values()]
        assert logs == ["".join(f"{line}\n" for line in range(rank + 1)) * times for rank in range(3)]
        assert (b"results of earlier jobs stay" in started.stderr) == (times > 1)
    # Before the first sync, it may be source code, which must not stay outdated.
    for home in [*cluster.homes.values()][:2]:
        (home / "copied").mkdir()
        (home / "copied/train.py").write_text(f"of {home}")
    first = cluster.run("-n", "2", "--sync-dst-dir", "copied", "true", cwd=source.with_name("copied"))
    assert f"would overwrite files that were changed there: 'train.py' on {ADDRESSES[1]};" in first.reason
    # What only the first node wrote is copied like any other file.
    assert (cluster.far[0] / "code/out/best").read_text() == "0\n" * 2
    for node in (source, cluster.far[0] / "code"):
        (node / "train.py").write_text(f"edited in {node}")
    refused = cluster.run("-n", "3", "--sync-dst-dir", "code", "true", cwd=source)
    assert f"would overwrite files that were changed there: 'train.py' on {ADDRESSES[1]};" in refused.reason
