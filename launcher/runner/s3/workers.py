"""Download in several processes of several threads each: one process would use one core, however fast the card is."""

import multiprocessing
import os
import signal
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Lock
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

from launcher.errors import LaunchError
from launcher.runner.fast_imports import PR_SET_PDEATHSIG, prctl
from launcher.runner.s3.listing import Address, Object
from launcher.runner.s3.locked_part import create_part
from launcher.runner.s3.object_reader import ObjectReader
from launcher.runner.sync.part_file import temporary_path

MAX_PROCESSES: Final = 8
THREADS: Final = 16
"""Connections of a process, each with a thread."""


class Task(NamedTuple):
    """An object, or a range of an object, to download."""

    s3_object: Object
    path: str
    """File to write; for a range, the existing temporary file."""
    start: int = 0
    stop: int = 0
    """End of a range; 0 for a whole object."""


class Arrived(NamedTuple):
    """Message: a task is done."""

    path: str
    start: int
    size: int
    """Number of bytes."""
    is_range: bool


class Workers:
    """The worker processes. Start them before any thread of this process, because they are forks."""

    def __init__(self, address: Address) -> None:
        context = multiprocessing.get_context("fork")
        self.tasks: SimpleQueue[Task] = context.SimpleQueue()
        self._reader, self._writer = context.Pipe(duplex=False)
        self._lock = context.Lock()
        values = (address, self.tasks, self._writer, self._lock)
        count = min(MAX_PROCESSES, len(os.sched_getaffinity(0)))
        self._processes = [context.Process(target=_work, args=values, daemon=True) for _ in range(count)]
        for process in self._processes:
            process.start()

    def post(self, event: Any) -> None:
        """Send an event to the thread that waits for the workers."""
        with self._lock:
            self._writer.send(event)

    def next_event(self) -> Any:
        """Wait for the next event: Arrived, the reason of a failure (str), or what `post` sent."""
        sources: list[Any] = [self._reader, *(process.sentinel for process in self._processes)]
        ready = connection.wait(sources)
        if self._reader in ready:
            return self._reader.recv()
        return "a process that downloads has ended (out of memory?)"

    def end(self) -> None:
        """End the processes at once."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()


def _work(address: Address, tasks: "SimpleQueue[Task]", writer: "connection.Connection[Any, Any]", lock: Lock) -> None:
    """Carry out tasks in threads until this process is killed."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # Find the credentials only when there is a task: a directory that lacks nothing needs none.
    first = tasks.get()
    try:
        reader = ObjectReader(address, connections=THREADS)
    except LaunchError as error:
        with lock:
            writer.send(str(error))
        return

    def serve(task: Task) -> None:
        while True:
            event = _carry_out(reader, task)
            with lock:
                writer.send(event)
            task = tasks.get()

    threads = [
        Thread(target=serve, args=[first]),
        *(Thread(target=lambda: serve(tasks.get())) for _ in range(THREADS - 1)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _carry_out(reader: ObjectReader, task: Task) -> "Arrived | str":
    """Download what a task names; return the reason if that fails."""
    try:
        count = _read_range(reader, task) if task.stop else _read_whole(reader, task)
        return Arrived(task.path, task.start, count, bool(task.stop))
    except LaunchError as error:
        return str(error)
    except OSError as error:
        return f"{task.path}: {error.strerror or error}"
    except Exception as error:
        # A bug here must end the download, which would otherwise wait for this task.
        return f"{task.path}: {type(error).__name__}: {error}"


def _read_range(reader: ObjectReader, task: Task) -> int:
    file = os.open(task.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return reader.read_range(task.s3_object.key, file, start=task.start, stop=task.stop, etag=task.s3_object.etag)
    finally:
        os.close(file)


def _read_whole(reader: ObjectReader, task: Task) -> int:
    """Write a whole object under a temporary name, then rename it."""
    part = temporary_path(Path(task.path))
    file = create_part(Path(task.path))
    try:
        count = reader.read_whole(task.s3_object.key, file, etag=task.s3_object.etag)
        if count != task.s3_object.size:
            raise LaunchError(f"{task.path}: {count} bytes arrived of {task.s3_object.size}; run the same line again")
        os.utime(file, (task.s3_object.modified_s, task.s3_object.modified_s))
        os.rename(part, task.path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
    finally:
        os.close(file)
    return count
