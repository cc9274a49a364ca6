"""Assemble a large file from ranges that arrive in any order; continue an interrupted download."""

import json
import os
import stat
from pathlib import Path
from typing import Final

from launcher.runner.s3.listing import Object
from launcher.runner.s3.locked_part import create_part, open_part
from launcher.runner.sync.part_file import temporary_path

RANGE_SIZE: Final = 16 << 20
"""Bytes of a range, and of the largest file that arrives in one piece."""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class RangedFile:
    """A file under its temporary name, with a journal of the ranges that it holds.

    The journal counts only until the node boots again: a crash may lose bytes that the journal says were written.
    """

    def __init__(self, path: str, s3_object: Object) -> None:
        self._path = Path(path)
        self._object = s3_object
        self.part = temporary_path(self._path)
        self._journal = self.part.with_name(f"{self.part.name}.ranges")
        self._missing: set[int] = set()
        self._file = -1
        """The part, open for its lock."""

    def open(self) -> list[tuple[int, int]]:
        """Open or continue the file; return the start and the end of each missing range.

        Raises LaunchError if another download has it.
        """
        size, identity = self._object.size, self._identity()
        starts = set(range(0, size, RANGE_SIZE))
        if self._reopen(identity):
            self._missing = starts - {int(line) for line in self._read_journal()[1:]}
        else:
            self.release()
            self._file = create_part(self._path)
            self._journal.unlink(missing_ok=True)
            os.ftruncate(self._file, size)
            self._missing = starts
            self._note(identity)
        return [(start, min(start + RANGE_SIZE, size)) for start in sorted(self._missing)]

    def receive(self, start: int) -> None:
        """Note that the file holds a range."""
        self._note(str(start))
        self._missing.discard(start)

    @property
    def is_complete(self) -> bool:
        """Return True if no range is missing."""
        return not self._missing

    def finish(self) -> None:
        """Give the file its time and its name."""
        # After a crash of the node, a file under its name must hold what arrived, because nothing compares its bytes.
        os.fsync(self._file)
        os.utime(self._file, (self._object.modified_s, self._object.modified_s))
        self.part.replace(self._path)
        self._journal.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Let another download have the part."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _reopen(self, identity: str) -> bool:
        """Open this user's part of the same object; return False if there is none."""
        try:
            self._file = open_part(self._path)
            statuses = os.fstat(self._file), self._journal.lstat()
        except (FileNotFoundError, PermissionError):
            return False
        is_ours = all(stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() for status in statuses)
        return is_ours and statuses[0].st_size == self._object.size and self._read_journal()[:1] == [identity]

    def _identity(self) -> str:
        return json.dumps([self._object, RANGE_SIZE, BOOT_ID.read_text().strip()])

    def _read_journal(self) -> list[str]:
        """Return the journal's complete lines."""
        return self._journal.read_text().split("\n")[:-1]

    def _note(self, line: str) -> None:
        with self._journal.open("a") as journal:
            journal.write(f"{line}\n")
