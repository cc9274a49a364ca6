"""Test the contents of a job's record, and how it is written and read."""

import asyncio
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.job_records import git as revision
from launcher.job_records import recorder as recorders
from launcher.job_records.git import RevisionQuery, parse_status
from launcher.job_records.recorder import JobRecorder
from launcher.job_records.records import JobRecord, JobState, Revision, read_record, without_values, write_record
from launcher.paths import JOBS_DIR
from tests.launcher.example_job import JOB, RECORD


def test_restarted_job_counts_its_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    recorder = JobRecorder(JOB, job_id="j", cwd="/")

    async def attempts() -> None:
        recorder.on_synced("sha256:d")
        for restart, host in enumerate(("a", "b")):
            recorder.on_running({host: ["rank-0.log"]}, restart_count=restart, gpus={host: None})

    recorder.begin()
    asyncio.run(attempts())
    kept = read_record(tmp_path / JOBS_DIR / "j")
    assert kept is not None
    assert (kept.state, kept.restarts, kept.logs) == (JobState.RUNNING, 1, {"b": ["rank-0.log"]})
    assert kept.revision.digest == "sha256:d"


def test_record_is_read_as_it_was_written_and_by_older_releases(tmp_path: Path) -> None:
    job = replace(RECORD, logs={"one": ["rank-0.log"]}, revision=Revision(commit="c", dirty=True))
    write_record(tmp_path, job)
    assert read_record(tmp_path) == job
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "of the future": 1}))
    assert read_record(tmp_path) == job
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"state": "ODD"}', "null"])
def test_invalid_record_is_skipped(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.json").write_text(text)
    assert read_record(tmp_path) is None


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (("env", "A=secret", "B=s", "python", "x", "lr=1"), ("env", "A=...", "B=...", "python", "x", "lr=1")),
        (("python", "A=1"), ("python", "A=1")),
        (("env", "A=secret"), ("env", "A=...")),
        (("env", "A=s", "/bin/bash", "-c", "B=s x"), ("env", "A=...", "/bin/bash", "-c", "B=... x")),
        (("/bin/bash", "-c", "A=secret B='s e' python x C=1"), ("/bin/bash", "-c", "A=... B=... python x C=...")),
        (("/bin/bash", "-c", 'export A="s \\" e"; python'), ("/bin/bash", "-c", "export A=...; python")),
        (("/bin/bash", "-c", "python --a=b"), ("/bin/bash", "-c", "python --a=b")),
        (("/bin/bash", "-c", "cd /x && T=s3 python t"), ("/bin/bash", "-c", "cd /x && T=... python t")),
        (("/bin/bash", "-c", "set -a; T=s3; python t"), ("/bin/bash", "-c", "set -a; T=...; python t")),
        (("/bin/bash", "-c", "set -a;T=s3&(U=`cat s`)|p"), ("/bin/bash", "-c", "set -a;T=...&(U=...|p")),
        (("/bin/bash", "-c", "T=$(echo s3) python"), ("/bin/bash", "-c", "T=... python")),
        (("/bin/bash", "-c", "T=s3"), ("/bin/bash", "-c", "T=...")),
        (("/bin/bash", "-c", "sh -c 'T=s3 python'"), ("/bin/bash", "-c", "sh -c 'T=... python'")),
        (("/bin/bash", "-c", "export T+='s 3"), ("/bin/bash", "-c", "export T+=...")),
        (("bash", "-c", "T=s3 python"), ("bash", "-c", "T=... python")),
        (("nice", "bash", "-lc", "T=s3"), ("nice", "bash", "-lc", "T=...")),
        (("env", "-u", "X", "T=s3", "python"), ("env", "-u", "X", "T=...", "python")),
        (("nice", "/usr/bin/env", "-i", "T=s 3", "python"), ("nice", "/usr/bin/env", "-i", "T=...", "python")),
    ],
)
def test_values_of_variables_are_not_kept(command: tuple[str, ...], kept: tuple[str, ...]) -> None:
    assert without_values(command) == kept


def test_checkouts_revision_is_recorded() -> None:
    head = "# branch.oid abc\n# branch.head main\n"
    assert parse_status(head) == Revision(commit="abc", dirty=False)
    assert parse_status(head + "1 .M N... 100644 100644 100644 a b x.py\n") == Revision(commit="abc", dirty=True)
    assert parse_status("# branch.oid (initial)\n# branch.head main\n") == Revision()


class HungGit:
    """Stands in for git on a hung file server: it neither answers nor dies."""

    returncode = None

    def __init__(self) -> None:
        self.asked: list[float | None] = []
        self.killed = False

    def poll(self) -> int | None:
        return None

    def kill(self) -> None:
        self.killed = True

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        assert timeout is not None, "nobody waits without limit"
        self.asked.append(timeout)
        raise subprocess.TimeoutExpired("git", timeout)


@pytest.fixture
def hung_git(monkeypatch: pytest.MonkeyPatch) -> HungGit:
    git = HungGit()
    monkeypatch.setattr(revision, "_is_checkout", lambda _: True)
    monkeypatch.setattr(revision, "_start", lambda *_: git)
    return git


def test_hanging_git_gives_no_revision(hung_git: HungGit) -> None:
    assert RevisionQuery("/").answer() == Revision()
    assert hung_git.asked == [revision.TIMEOUT_S]
    assert hung_git.killed


def test_hanging_git_does_not_delay_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hung_git: HungGit) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(recorders, "UPLOAD_AFTER_S", 0.0)
    uploaded: list[list[float | None]] = []

    async def go() -> None:
        begun = asyncio.Event()

        def upload(_: Path) -> None:
            uploaded.append(list(hung_git.asked))
            begun.set()

        monkeypatch.setattr(recorders, "start_upload", upload)
        recorder.on_running({"a": ["rank-0.log"]}, restart_count=0, gpus={"a": None})
        await asyncio.wait_for(begun.wait(), 60)

    recorder = JobRecorder(JOB, job_id="j", cwd="/")
    recorder.begin()
    asyncio.run(go())
    assert uploaded == [[]]
    # The upload at the job's end may wait.
    recorder.on_end(None)
    assert hung_git.asked == [revision.TIMEOUT_S]


def test_invalid_job_name_in_a_record_is_ignored() -> None:
    for name in ("a\x1b[2J", "7b", "a" * 41, 7, ["a"]):
        values = json.loads(RECORD.to_bytes()) | {"name": name}
        assert JobRecord.from_bytes(json.dumps(values).encode()) == RECORD
