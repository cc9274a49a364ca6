"""Test that a setup runs once per content, in the right order, and that its outcome is always recorded."""

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from botocore.exceptions import EndpointConnectionError

from bootstrap.contract import SETUP_MARKER_FILE, WORKER, NodeType
from bootstrap.errors import SetupError
from bootstrap.files.paths import under_root
from bootstrap.setup.archive import SetupSource
from bootstrap.setup.progress import SetupProgress, read_progress
from bootstrap.setup.run_once import RETRY_S, SETUP_DIR, SetupDependencies, run_setup_once
from stacks.nodes.bundle import zip_files
from tests.bootstrap.simulated_node import Clock

BOTH = {"setup.sh": b"#!/bin/sh\n", "requirements.txt": b"einops\n"}


@dataclass
class Node:
    """A node's disk, and what the setup did on it."""

    root: Path
    clock: Clock = field(default_factory=Clock)
    ran: list[list[str]] = field(default_factory=list)
    fails: BaseException | None = None
    failures: int | None = None
    """Number of programs that fail; None for all."""
    offline_until: float = 0.0
    order: list[str] = field(default_factory=list)

    def run_setup(
        self, files: dict[str, bytes], *, sha256: str | None = None, node_type: NodeType = WORKER
    ) -> SetupProgress:
        content = zip_files(files)
        source = SetupSource(
            url="s3://assets/a/b.zip", sha256=sha256 or hashlib.sha256(content).hexdigest(), timeout_s=60.0
        )

        def read(bucket: str, key: str) -> bytes:
            assert (bucket, key) == ("assets", "a/b.zip")
            if self.clock.now < self.offline_until:
                raise EndpointConnectionError(endpoint_url="s3")
            return content

        python = self.root / "python"
        python.touch()
        dependencies = SetupDependencies(
            root=self.root,
            read=read,
            run=self._run,
            flush=lambda: self.order.append("flush"),
            python=str(python),
            monotonic=self.clock,
            sleep=self._sleep,
        )
        run_setup_once(source, node_type=node_type, dependencies=dependencies)
        return read_progress(self.root, sha256=source.sha256)

    def _run(self, command: list[str], *, cwd: Path, deadline: float) -> None:
        assert deadline <= self.clock.now + 60.0
        self.ran.append([Path(command[0]).name, *command[1:]])
        for file in cwd.iterdir():
            assert bool(stat.S_IMODE(file.stat().st_mode) & 0o100) == (file.name == "setup.sh")
        if self.fails and self.failures != 0:
            self.failures = self.failures and self.failures - 1
            raise self.fails

    def _sleep(self, seconds: float) -> None:
        self.clock.now += seconds


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(root=tmp_path)


def test_setup_script_runs_before_the_requirements(node: Node) -> None:
    progress = node.run_setup(BOTH)
    pip = ["python", "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    assert node.ran == [["setup.sh"], [*pip, "--requirement", "requirements.txt"]]
    outcome = progress.outcome
    assert (outcome.partition(":")[0], len(outcome), progress.is_done, progress.failure) == ("done", 17, True, None)


def test_setup_runs_once_per_content(node: Node) -> None:
    node.run_setup(BOTH)
    node.offline_until = node.clock.now + 1000.0
    assert node.run_setup(BOTH).is_done
    assert len(node.ran) == 2
    node.offline_until = 0.0
    assert node.run_setup({"setup.sh": b"#!/bin/sh\ntrue\n"}).is_done
    assert node.ran[2:] == [["setup.sh"]]


def test_master_of_a_workers_image_runs_the_setup_again(node: Node) -> None:
    node.run_setup(BOTH)
    assert node.run_setup(BOTH, node_type="master").is_done
    assert len(node.ran) == 4
    node.run_setup(BOTH, node_type="master")
    assert len(node.ran) == 4


def test_marker_of_an_older_release_is_valid_on_its_own_node(node: Node) -> None:
    sha256 = hashlib.sha256(zip_files(BOTH)).hexdigest()
    marker = under_root(node.root, SETUP_MARKER_FILE)
    marker.parent.mkdir(parents=True)
    marker.write_text(f"{sha256}\n")
    assert node.run_setup(BOTH).is_done
    assert node.ran == []


def test_failed_or_interrupted_setup_runs_again_at_boot(node: Node) -> None:
    node.fails = SetupError("E: no package foo", "setup.sh ended with exit code 1")
    failed = node.run_setup(BOTH)
    assert (failed.failure, failed.is_done, len(node.ran)) == ("E: no package foo", False, 1)
    assert failed.outcome.startswith("failed:")
    node.fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        node.run_setup(BOTH)
    interrupted = read_progress(node.root, sha256=failed.sha256)
    assert (interrupted.is_running, interrupted.outcome, interrupted.failure) == (True, "", None)
    node.fails = None
    assert node.run_setup(BOTH).is_done


def test_failing_program_is_retried_once(node: Node) -> None:
    node.fails = SetupError("E: could not get lock", "setup.sh ended with exit code 100", transient=True)
    node.failures = 1
    before = node.clock.now
    assert node.run_setup(BOTH).is_done
    assert [command[0] for command in node.ran] == ["setup.sh", "setup.sh", "python"]
    assert node.clock.now - before == RETRY_S


def test_program_runs_at_most_twice_and_within_the_deadline(node: Node) -> None:
    node.fails = SetupError("no", "setup.sh ended with exit code 1", transient=True)
    assert node.run_setup(BOTH).failure == "no"
    assert len(node.ran) == 2
    node.offline_until = node.clock.now + 60.0 - RETRY_S
    assert node.run_setup(BOTH).failure == "no"
    assert len(node.ran) == 3


def test_output_is_logged_before_the_failure_is_reported(node: Node) -> None:
    sha256 = hashlib.sha256(zip_files(BOTH)).hexdigest()
    node.fails = SetupError("no", "no")

    class Flushes(list[str]):
        def append(self, word: str) -> None:
            failures.append(read_progress(node.root, sha256=sha256).failure)

    failures: list[str | None] = []
    node.order = Flushes()
    progress = node.run_setup(BOTH)
    assert (failures, progress.failure) == ([None], "no")


def test_full_disk_is_a_failure_of_one_line(node: Node) -> None:
    node.fails = OSError(28, os.strerror(28))
    assert node.run_setup(BOTH).failure == "No space left on device"


def test_fetching_the_archive_is_retried_until_the_deadline(node: Node) -> None:
    node.offline_until = node.clock.now + 10.0
    assert node.run_setup(BOTH).is_done
    node.offline_until = node.clock.now + 1000.0
    assert node.run_setup({"setup.sh": b"#!/bin/sh\n# other\n"}).failure == "cannot fetch it from S3"
    assert len(node.ran) == 2


def test_archive_with_another_hash_runs_nothing(node: Node) -> None:
    assert node.run_setup(BOTH, sha256="0" * 64).failure == "wrong hash"
    assert node.ran == []
    assert not under_root(node.root, SETUP_MARKER_FILE).exists()


def test_archive_with_another_file_is_not_unpacked(node: Node) -> None:
    assert node.run_setup({"../../etc/passwd": b"x"}).failure == "bad archive"
    assert not [path for path in under_root(node.root, SETUP_DIR).rglob("*") if path.is_file()]


def test_setup_without_pytorchs_python_reports_its_path(node: Node) -> None:
    content = zip_files(BOTH)
    source = SetupSource(url="s3://a/b", sha256=hashlib.sha256(content).hexdigest(), timeout_s=60.0)
    dependencies = SetupDependencies(
        root=node.root, read=lambda *_: content, run=lambda *_, **__: None, flush=lambda: None, python="/none/python"
    )
    run_setup_once(source, node_type=WORKER, dependencies=dependencies)
    assert read_progress(node.root, sha256=source.sha256).failure == "no /none/python"
