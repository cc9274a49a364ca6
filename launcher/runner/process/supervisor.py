"""Run a node's processes to their end: forward output, report exits, stop all on request.

A single thread waits in a single poll(2). The launcher's disconnection, TERM, INT and HUP all mean stop: the processes
get TERM, and KILL after the grace period.
"""

import os
import select
import time
from _collections_abc import Callable, Mapping, Sequence  # importing collections is slow

from launcher.runner.fast_imports import signal
from launcher.runner.logs import ProcessLog
from launcher.runner.process import processes
from launcher.runner.process.poller import Poller
from launcher.runner.runner_channel import RunnerChannel
from launcher.transport.protocol import CANNOT_RUN, NOT_FOUND, FrameType

READ_SIZE = 1 << 16
"""Size of a pipe in bytes: one read empties it."""
DRAIN_S = 0.5
"""Seconds of silence after which the output of an ended process counts as complete."""
POLL_S = 0.05


class _SupervisedProcess:
    """A child process with its log, its open streams and the progress of its end."""

    def __init__(self, child: processes.ChildProcess, *, index: int, log: "ProcessLog | None") -> None:
        self.child = child
        self.pgid = child.pid
        self.index = index
        self.log = log
        self.streams: dict[int, int] = {child.stdout: FrameType.STDOUT, child.stderr: FrameType.STDERR}
        self.code: int | None = None
        self.drain_until = 0.0
        self.kill_at: float | None = None
        self.reported = False


class Supervisor:
    """Supervisor of one node's processes."""

    def __init__(self, channel: RunnerChannel, *, grace_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._channel = channel
        self._grace_s = grace_s
        self._clock = clock
        self._unfinished: list[_SupervisedProcess] = []
        self._paused = False
        self._all_succeeded = True
        self._poller = Poller()
        self._poller.add(channel.source, self._receive)
        self._watch_signals()

    def start(
        self,
        command: Sequence[str],
        *,
        index: int,
        environment: Mapping[str, str],
        cwd: str,
        log: ProcessLog | None = None,
    ) -> None:
        """Start one process; if it cannot start, report the exit code that a shell would."""
        try:
            started = processes.start_process(command, environment=environment, cwd=cwd)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            reason = "command not found" if missing else (error.strerror or str(error))
            self.refuse(index, reason=f"{command[0]}: {reason}", code=NOT_FOUND if missing else CANNOT_RUN)
            return
        process = _SupervisedProcess(started, index=index, log=log)
        self._unfinished.append(process)
        self._watch_process(process)

    def refuse(self, index: int, *, reason: str, code: int) -> None:
        """Report a process that was not started."""
        self._all_succeeded = False
        self._channel.send(FrameType.STDERR, f"{reason}\n".encode(errors="surrogateescape"), process=index)
        self._channel.send(FrameType.EXIT, str(code).encode("ascii"), process=index)

    def run(self) -> bool:
        """Run until every process has ended, its group is empty, and everything is reported.

        Returns whether all succeeded without being stopped.
        """
        while self._unfinished or self._channel.has_pending:
            timeout = self._channel.keep_alive()
            if self._channel.stop_requested:
                self._terminate_all()
            self._throttle()
            self._poller.wait(min(timeout, self._poll_s()))
            self._channel.flush()
            self._kill_overdue_and_report()
        return self._all_succeeded and not self._channel.stop_requested

    def _poll_s(self) -> float:
        # The kernel reports the end of a group's leader, but not that the group is empty.
        return POLL_S if any(process.kill_at is not None for process in self._unfinished) else float("inf")

    def _kill_overdue_and_report(self) -> None:
        for process in self._unfinished:
            if process.kill_at is not None and self._clock() >= process.kill_at:
                processes.signal_group(process.pgid, signal.SIGKILL)
            if not self._paused:
                self._report_if_ended(process)
        if not self._paused:
            for process in tuple(self._unfinished):
                self._finish_if_over(process)

    def _finish_if_over(self, process: _SupervisedProcess) -> None:
        """Forward the rest of the output of a process that is over, close its streams, and forget it."""
        if not (process.reported and processes.group_is_gone(process.pgid) and self._is_drained(process)):
            return
        for fd, kind in tuple(process.streams.items()):
            os.set_blocking(fd, False)
            try:
                self._forward(process, fd, kind)
            except BlockingIOError:
                pass
            self._close_stream(process, fd)
        self._unfinished.remove(process)

    def _is_drained(self, process: _SupervisedProcess) -> bool:
        """Return True if the output was read completely or is silent: an escaped process can keep a stream open."""
        until = min(process.drain_until, process.kill_at or process.drain_until)
        return not process.streams or self._clock() >= until

    # ---- what the poller watches ----

    def _watch_signals(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        for number in processes.STOP_SIGNALS:
            signal.signal(number, lambda *_: None)

        def on_signal() -> None:
            if set(os.read(reader, 64)) & set(processes.STOP_SIGNALS):
                self._terminate_all()

        self._poller.add(reader, on_signal)

    def _watch_process(self, process: _SupervisedProcess) -> None:
        if not self._paused:
            self._watch_streams(process)
        ended = os.pidfd_open(process.pgid)
        self._poller.add(ended, lambda: self._leader_ended(process, ended))

    def _watch_streams(self, process: _SupervisedProcess) -> None:
        for fd, kind in process.streams.items():
            self._poller.add(fd, self._forward_callback(process, fd, kind))

    def _forward_callback(self, process: _SupervisedProcess, fd: int, kind: int) -> Callable[[], None]:
        return lambda: self._forward(process, fd, kind)

    def _throttle(self) -> None:
        """Pause reading from the processes while the launcher reads slowly."""
        if self._channel.has_pending:
            self._watch_sink()
        elif self._channel.sink in self._poller:
            self._poller.remove(self._channel.sink)
        if self._channel.is_full == self._paused:
            return
        self._paused = self._channel.is_full
        for process in self._unfinished:
            # While paused, the process could not write.
            process.drain_until = self._clock() + DRAIN_S
            if self._paused:
                for fd in process.streams:
                    self._poller.remove(fd)
            else:
                self._watch_streams(process)

    def _watch_sink(self) -> None:
        if self._channel.sink not in self._poller:
            self._poller.add(self._channel.sink, self._channel.flush, events=select.POLLOUT)

    # ---- callbacks of the poller ----

    def _receive(self) -> None:
        self._channel.receive()
        if self._channel.stop_requested:
            self._poller.remove(self._channel.source)

    def _forward(self, process: _SupervisedProcess, fd: int, kind: int) -> None:
        data = os.read(fd, READ_SIZE)
        if data:
            if process.log is not None:
                process.log.write(data)
            self._channel.send(kind, data, process=process.index)
            process.drain_until = self._clock() + DRAIN_S
        else:
            self._close_stream(process, fd)

    def _close_stream(self, process: _SupervisedProcess, fd: int) -> None:
        if process.streams.pop(fd, None) is not None and fd in self._poller:
            self._poller.remove(fd)

    def _leader_ended(self, process: _SupervisedProcess, pidfd: int) -> None:
        self._poller.remove(pidfd)
        os.close(pidfd)
        process.code = processes.exit_code(process.child.wait())
        self._all_succeeded = self._all_succeeded and process.code == 0
        process.drain_until = self._clock() + DRAIN_S
        # End what the process left behind; the node's other processes continue.
        self._terminate(process)

    def _report_if_ended(self, process: _SupervisedProcess) -> None:
        if not process.reported and process.code is not None and self._is_drained(process):
            process.reported = True
            self._channel.send(FrameType.EXIT, str(process.code).encode("ascii"), process=process.index)

    def _terminate_all(self) -> None:
        self._all_succeeded = False
        for process in self._unfinished:
            self._terminate(process)

    def _terminate(self, process: _SupervisedProcess) -> None:
        if process.kill_at is None:
            process.kill_at = self._clock() + self._grace_s
            processes.signal_group(process.pgid, signal.SIGTERM)
            if processes.runs_as_other_user(process.pgid):
                note = f"process {process.pgid} runs as another user, so it cannot be ended"
                self._channel.send(FrameType.NOTE, note.encode("ascii"))
