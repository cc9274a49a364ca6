"""Test which announcements of the agent the log of a durable job gets."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from bootstrap.idle.notice import Notices
from bootstrap.idle.pause_record import PauseRecord
from launcher.durable import mirror, service
from launcher.job_records.pause_notices import log_pauses
from launcher.job_records.recorder import jobs_directory
from launcher.paths import JOB_LOG
from tests.launcher.example_job import RECORD

NOW = datetime(2026, 11, 23, 10, tzinfo=timezone.utc)
AT_10_10, AT_11 = NOW + timedelta(minutes=10), NOW + timedelta(hours=1)
EXPIRES = (
    "launch: this cluster pauses at {} UTC (expires) and all its nodes will be terminated; dlcluster extend 8h "
    "postpones it\n"
)
POSTPONED = "launch: this cluster's expiry has been postponed\n"
IDLE = (
    "launch: this cluster is idle and pauses at 10:10 UTC, which terminates all its nodes; press a key or start a job "
    "to keep it running\n"
)


class Announcements:
    """The agent's announcements, and the logs of jobs that read them."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "pause-notices.json"
        self._agent = self.new_agent()

    def new_agent(self) -> Notices:
        return Notices(lambda sentence: None, write=self.file.write_text)

    def restart_agent(self) -> None:
        self._agent = self.new_agent()

    def announce(self, *, expires: datetime | None = None, idle: datetime | None = None, at: datetime = NOW) -> None:
        self._agent.follow(PauseRecord(expires=expires, pauses_at=idle), now=at)

    def log(self, job: str) -> str:
        """Return a job's log after it has been told what is new."""
        log_pauses([job], notices=self.file)
        file = jobs_directory() / job / JOB_LOG
        return file.read_text() if file.exists() else ""


@pytest.fixture
def announcements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Announcements:
    monkeypatch.setenv("HOME", str(tmp_path))
    for job in ("early", "late"):
        (jobs_directory() / job).mkdir(parents=True)
    return Announcements(tmp_path)


def test_pause_is_logged_once_with_its_reason(announcements: Announcements) -> None:
    assert announcements.log("early") == ""
    announcements.announce(expires=AT_10_10)
    assert [announcements.log("early") for _ in range(2)] == [EXPIRES.format("10:10")] * 2
    announcements.restart_agent()
    announcements.announce(expires=AT_10_10)
    assert announcements.log("early") == EXPIRES.format("10:10")
    announcements.announce(expires=AT_10_10, idle=AT_10_10)
    assert announcements.log("early") == EXPIRES.format("10:10") + IDLE


def test_job_that_was_told_learns_of_a_postponement(announcements: Announcements) -> None:
    announcements.announce(expires=AT_10_10)
    announcements.log("early")
    announcements.announce(expires=AT_11)
    assert announcements.log("early") == EXPIRES.format("10:10") + POSTPONED
    assert announcements.log("late") == ""
    later = AT_11 - timedelta(minutes=10)
    announcements.announce(expires=AT_11, at=later)
    assert announcements.log("early") == EXPIRES.format("10:10") + POSTPONED + EXPIRES.format("11:00")
    assert announcements.log("late") == EXPIRES.format("11:00")


def test_pause_whose_time_has_passed_is_not_announced(announcements: Announcements) -> None:
    announcements.announce(expires=AT_10_10)
    announcements.announce(expires=AT_10_10, at=AT_10_10)
    assert announcements.log("late") == ""


def test_new_agent_withdraws_what_the_last_one_announced(announcements: Announcements) -> None:
    announcements.announce(idle=AT_10_10)
    announcements.restart_agent()
    announcements.announce()
    assert announcements.log("late") == ""


def test_job_keeps_its_own_lines(announcements: Announcements) -> None:
    log = jobs_directory() / "early" / JOB_LOG
    with log.open("ab") as own:
        own.write(b"step 1\n")
        own.flush()
        announcements.announce(expires=AT_10_10)
        announcements.log("early")
        own.write(b"step 2\n")
    assert log.read_text() == f"step 1\n{EXPIRES.format('10:10')}step 2\n"


def test_service_logs_pauses_for_open_jobs(announcements: Announcements, monkeypatch: pytest.MonkeyPatch) -> None:
    announcements.announce(expires=AT_10_10)
    (jobs_directory() / RECORD.id).mkdir()
    told: list[str] = []
    monkeypatch.setattr(mirror, "open_jobs", lambda: [type("Open", (), {"job": RECORD})])
    monkeypatch.setattr(service, "log_pauses", lambda jobs: told.extend(jobs))
    service.log_pauses_of_open_jobs()
    assert told == [RECORD.id]


def test_log_that_cannot_be_written_is_tried_again(
    announcements: Announcements, monkeypatch: pytest.MonkeyPatch
) -> None:
    announcements.announce(expires=AT_10_10)

    def fail(*_: object) -> int:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.write", fail)
        with pytest.raises(OSError, match="No space left"):
            announcements.log("early")
    assert announcements.log("early") == EXPIRES.format("10:10")
    assert (jobs_directory() / "early" / JOB_LOG).stat().st_mode & 0o777 == 0o600
