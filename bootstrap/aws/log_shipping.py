"""Send the agent's log lines to the journal, to a file, and to the cluster's log group.

While the log group is unreachable, lines wait in a short queue and the agent continues.
"""

import contextlib
import logging
import logging.handlers
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from bootstrap.atomic_file import make_directory

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_logs.type_defs import InputLogEventTypeDef

log = logging.getLogger(__name__)

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
JOURNAL_FORMAT: Final = "%(levelname)s %(name)s: %(message)s"
FILE_BYTES: Final = 1_000_000
QUEUE_LINES: Final = 1_000
RETRY_S: Final = 30.0
BATCH_LINES: Final = 100
LINE_CHARACTERS: Final = 2_000
"""Longest line in characters. A full batch fits into PutLogEvents' 1 MiB even at four bytes per character."""


def set_up_logging(file: Path) -> "LogShipper":
    """Send every line to the journal, the file and the log shipper; return the shipper."""
    # On a full disk the file handler would fill the journal with tracebacks.
    logging.raiseExceptions = False
    # If the file is unavailable, the journal still has every line.
    with contextlib.suppress(OSError):
        make_directory(file.parent)
    to_file = logging.handlers.RotatingFileHandler(file, maxBytes=FILE_BYTES, backupCount=1, delay=True)
    to_file.setFormatter(logging.Formatter(FORMAT))
    to_journal = logging.StreamHandler()
    to_journal.setFormatter(logging.Formatter(JOURNAL_FORMAT))
    shipper = LogShipper()
    shipper.setFormatter(logging.Formatter(JOURNAL_FORMAT))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    for handler in (to_journal, to_file, shipper):
        root.addHandler(handler)
    for chatty in ("botocore", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return shipper


def shorten(text: str) -> str:
    """Cut the middle out of a long line, because a traceback names the error at its end."""
    if len(text) <= LINE_CHARACTERS:
        return text
    half = LINE_CHARACTERS // 2 - 2
    return f"{text[:half]}...{text[-half:]}"


class LogShipper(logging.Handler):
    """Queue of log lines; ``ship`` sends them to the node's log stream without logging errors of AWS."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._queue: deque[InputLogEventTypeDef] = deque(maxlen=QUEUE_LINES)
        self._client: CloudWatchLogsClient | None = None
        self._group = ""
        self._stream = ""
        self._has_stream = False
        self._monotonic = monotonic
        self._not_before = 0.0
        self._failing = False

    def connect(self, client: "CloudWatchLogsClient", *, group: str, stream: str) -> None:
        """Set the destination; lines logged earlier are still queued."""
        self._client, self._group, self._stream = client, group, stream

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one line."""
        text = shorten(self.format(record))
        self._queue.append({"timestamp": int(record.created * 1000), "message": text})

    def ship(self) -> None:
        """Send the oldest lines; after a failure, pause for RETRY_S."""
        if self._client is None or not self._queue or self._monotonic() < self._not_before:
            return
        count = min(len(self._queue), BATCH_LINES)
        try:
            self._send(self._client, list(islice(self._queue, count)))
        except (BotoCoreError, ClientError) as error:
            self._not_before = self._monotonic() + RETRY_S
            if not self._failing:
                log.warning("cannot send log lines, will retry: %s", error)
            self._failing = True
        else:
            self._failing = False
            for _ in range(count):
                self._queue.popleft()

    def flush(self) -> None:
        """Send all queued lines, until the first failure."""
        while self._client is not None and self._queue and self._monotonic() >= self._not_before:
            self.ship()

    def _send(self, client: "CloudWatchLogsClient", events: "list[InputLogEventTypeDef]") -> None:
        if not self._has_stream:
            self._create_stream(client)
        events.sort(key=lambda event: event["timestamp"])
        client.put_log_events(logGroupName=self._group, logStreamName=self._stream, logEvents=events)

    def _create_stream(self, client: "CloudWatchLogsClient") -> None:
        try:
            client.create_log_stream(logGroupName=self._group, logStreamName=self._stream)
        except client.exceptions.ResourceAlreadyExistsException:
            log.debug("log stream %s already exists", self._stream)
        self._has_stream = True
