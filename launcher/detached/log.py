"""Log a job that runs without a terminal: both streams of all its processes, as a terminal would show them."""

from pathlib import Path

from launcher.runner.logs import ProcessLog

LOG_FILE = "job.log"


class LogSink:
    """Act as a launcher.output.prefixes.Sink, rotated as a process's log is; a full disk ends the log, not the job."""

    def __init__(self, directory: Path) -> None:
        self.lost: str | None = None
        self.is_terminal = False
        self._log = ProcessLog(str(directory / LOG_FILE))

    async def send(self, data: bytes) -> None:
        self._log.write(data)

    def send_at_the_end(self, data: bytes, *, deadline_s: float) -> None:
        self._log.write(data)

    def reader_has_gone(self) -> bool:
        return False
