"""The launcher's own side of its job's record: written when something happens to the job.

A record that cannot be written is no reason to end a job; one note says so.
"""

import asyncio
import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from launcher.history.git import RevisionQuestion
from launcher.history.lock import BEAT_S, beat, boot_id, end_beats, hold
from launcher.history.record_upload import Upload, start_upload, upload
from launcher.history.records import JobRecord, Revision, State, now, without_values, write_record
from launcher.job.node import Failure
from launcher.job.spec import JOBS_DIR, Job
from launcher.runner.logs import KEPT_JOBS, clear_away

UPLOAD_AFTER_S = 10.0
"""A job that goes on for so long is in the bucket while it runs; a shorter one at its end."""


def jobs_directory() -> Path:
    """Where the records of this user's jobs are."""
    return Path.home() / JOBS_DIR


class Journal:
    """Keeps one job's record."""

    def __init__(
        self,
        job: Job,
        *,
        job_id: str,
        cwd: str,
        detached: bool = False,
        on_running: Callable[[], None] = lambda: None,
        goes_down: Callable[[], bool] = lambda: False,
    ) -> None:
        self._record = JobRecord(
            id=job_id,
            state=State.PENDING,
            command=without_values(job.command),
            hosts=tuple(map(str, job.hosts)),
            framework=job.framework,
            grace_s=job.grace_s,
            cwd=cwd,
            user=user_name(),
            pid=os.getpid(),
            machine=os.uname().nodename,
            boot_id=boot_id(),
            start=now(),
            detached=detached,
        )
        self._on_running = on_running
        self._goes_down = goes_down
        self._directory = jobs_directory() / job_id
        self._question: RevisionQuestion | None = None
        self._upload: Upload | None = None
        self.trouble: str | None = None
        """Why no record is kept."""

    @property
    def job_id(self) -> str:
        """Whose record it is."""
        return self._record.id

    def begin(self) -> None:
        """From here on the job is known, as PENDING."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            hold(self._directory)
        except OSError as error:
            self.trouble = self._why(error)
            return
        self._question = RevisionQuestion(self._record.cwd)
        self._write()
        clear_away(str(self._directory.parent), keep=KEPT_JOBS)

    async def beat(self) -> None:
        """Give signs of life to machines that have the same home directory, until it is cancelled."""
        while True:
            await asyncio.sleep(BEAT_S)
            with suppress(OSError):
                beat(self._directory)

    def running(self, logs: Mapping[str, Sequence[str]], *, restart: int) -> None:
        """The processes start, for the `restart`-th time again; `logs` names each host's logs."""
        again = self._record.state is State.RUNNING
        self._change(
            state=State.RUNNING,
            hosts=tuple(logs),
            logs={host: list(names) for host, names in logs.items()},
            restarts=restart,
        )
        if not again:
            self._on_running()
            asyncio.get_running_loop().call_later(UPLOAD_AFTER_S, self._begin_upload)

    def synced(self, digest: str) -> None:
        """The nodes have the folder with this digest."""
        self._change(revision=replace(self._record.revision, digest=digest))

    def ended(self, failure: Failure | None) -> None:
        """The job is over."""
        if failure is not None and failure.cancelled and self._goes_down():
            # Nobody has asked for the job's end.
            failure = replace(failure, cancelled=False, reason=f"{failure.reason}: its user's systemd stops")
        state = State.SUCCEEDED if failure is None else State.CANCELLED if failure.cancelled else State.FAILED
        self._change(
            state=state,
            end=now(),
            exit_code=0 if failure is None else failure.exit_code,
            reason=None if failure is None else failure.reason,
            revision=self._revision(),
        )

    def publish(self) -> str | None:
        """Copy the record of the job, which is over, to the bucket; returns why that could not be done, or None."""
        if self.trouble is not None:
            return None
        if self._upload is not None:
            # Two of them at once might arrive in either order.
            self._upload.finish()
        trouble = upload(self._directory)
        with suppress(OSError):
            # Nothing more is to come; until now nobody was to clear it away.
            end_beats(self._directory)
        return trouble

    def _revision(self) -> Revision:
        known, self._question = self._question, None
        if known is None:
            return self._record.revision
        return replace(known.answer(), digest=self._record.revision.digest)

    def _begin_upload(self) -> None:
        # The job goes on: the nodes miss its launcher's signs of life while it waits.
        if self._question is not None and self._question.is_answered:
            self._change(revision=self._revision())
        with suppress(OSError):
            self._upload = start_upload(self._directory)

    def _change(self, **values: object) -> None:
        self._record = replace(self._record, **values)  # type: ignore[arg-type]  # fields by name, of several types
        self._write()

    def _write(self) -> None:
        if self.trouble is not None:
            return
        try:
            write_record(self._directory, self._record)
        except OSError as error:
            self.trouble = self._why(error)

    def _why(self, error: OSError) -> str:
        # What fails on an open file (a lock, a full disk) does not say on which.
        return f"{error.filename or self._directory}: {error.strerror}"


def user_name() -> str:
    """Whose process this is."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
