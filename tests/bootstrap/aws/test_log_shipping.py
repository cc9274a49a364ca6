"""Test that the agent's log lines reach CloudWatch Logs in order, after failures and restarts too."""

import logging
import logging.handlers
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bootstrap.aws import log_shipping as logs
from bootstrap.phases import Phases
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import LOG_GROUP, Clock

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient


@pytest.fixture
def shipper() -> logs.LogShipper:
    made = logs.LogShipper(monotonic=Clock())
    made.setFormatter(logging.Formatter("%(message)s"))
    return made


def emit(shipper: logs.LogShipper, text: str) -> None:
    shipper.handle(logging.makeLogRecord({"msg": text}))


def shipped(client: "CloudWatchLogsClient") -> list[str]:
    events = client.get_log_events(logGroupName=LOG_GROUP, logStreamName="i-1", startFromHead=True)["events"]
    return [event["message"] for event in events]


def test_log_lines_are_buffered_until_connected(cluster: SimulatedCluster, shipper: logs.LogShipper) -> None:
    emit(shipper, "early")
    shipper.ship()
    shipper.connect(cluster.clients.logs, group=LOG_GROUP, stream="i-1")
    shipper.ship()
    emit(shipper, "later")
    shipper.ship()
    shipper.ship()
    assert shipped(cluster.clients.logs) == ["early", "later"]


def test_many_long_lines_go_in_batches_that_the_service_takes(
    cluster: SimulatedCluster, shipper: logs.LogShipper
) -> None:
    shipper.connect(cluster.clients.logs, group=LOG_GROUP, stream="i-1")
    for number in range(250):
        emit(shipper, f"{number} " + "\N{SNOWMAN}" * 5_000)
    seen = []
    for _ in range(3):
        shipper.ship()
        seen.append(len(shipped(cluster.clients.logs)))
    assert seen == [100, 200, 250]
    assert shipped(cluster.clients.logs)[249].startswith("249 ")


def test_restarted_agent_continues_its_stream(cluster: SimulatedCluster, shipper: logs.LogShipper) -> None:
    cluster.clients.logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName="i-1")
    shipper.connect(cluster.clients.logs, group=LOG_GROUP, stream="i-1")
    emit(shipper, "again")
    shipper.ship()
    assert shipped(cluster.clients.logs) == ["again"]


def test_lines_are_kept_after_a_failure_and_sent_after_a_pause(cluster: SimulatedCluster) -> None:
    clock = Clock()
    shipper = logs.LogShipper(monotonic=clock)
    cluster.clients.logs.delete_log_group(logGroupName=LOG_GROUP)
    shipper.connect(cluster.clients.logs, group=LOG_GROUP, stream="i-1")
    emit(shipper, "kept")
    shipper.ship()
    cluster.clients.logs.create_log_group(logGroupName=LOG_GROUP)
    shipper.ship()
    assert cluster.clients.logs.describe_log_streams(logGroupName=LOG_GROUP)["logStreams"] == []
    clock.now += logs.RETRY_S
    shipper.ship()
    assert shipped(cluster.clients.logs) == ["kept"]


def test_long_line_keeps_its_beginning_and_its_end() -> None:
    assert logs.shorten("short") == "short"
    traceback = "crashed\n" + "  File\n" * 2_000 + "ZeroDivisionError: on purpose"
    cut = logs.shorten(traceback)
    assert len(cut) <= logs.LINE_CHARACTERS
    assert cut.startswith("crashed\n  File")
    assert cut.endswith("File\nZeroDivisionError: on purpose")


@pytest.fixture
def _root_logger() -> Iterator[None]:
    """Undo the test's changes to the process's logging."""
    root = logging.getLogger()
    level, raising = root.level, logging.raiseExceptions
    kinds = (logging.handlers.RotatingFileHandler, logging.StreamHandler, logs.LogShipper)
    yield
    for handler in root.handlers[:]:
        if type(handler) in kinds:
            root.removeHandler(handler)
            handler.close()
    root.setLevel(level)
    logging.raiseExceptions = raising


@pytest.mark.usefixtures("_root_logger")
def test_lines_go_to_the_journal_and_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log" / "agent.log"
    logs.set_up_logging(file)
    clock = Clock()
    phases = Phases(monotonic=clock)
    clock.now += 1.25
    phases.log_end("record")
    phases.log_end("record")
    clock.now += 2.0
    phases.log_end("files")
    expected = [
        "INFO bootstrap.phases: phase record took 1.25 s, 1.25 s since the start",
        "INFO bootstrap.phases: phase files took 2.00 s, 3.25 s since the start",
    ]
    captured = capsys.readouterr()
    assert captured.err.splitlines() == expected
    assert captured.out == ""
    assert [line.split(" ", 2)[2] for line in file.read_text().splitlines()] == expected


@pytest.mark.usefixtures("_root_logger")
def test_unwritable_log_file_does_not_prevent_logging(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text("a file where the directory should be")
    logs.set_up_logging(tmp_path / "log" / "agent.log")
    logging.getLogger("bootstrap.test").info("still here")
    assert capsys.readouterr().err == "INFO bootstrap.test: still here\n"
