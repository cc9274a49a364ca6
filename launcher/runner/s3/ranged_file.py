"""Assemble a large file from ranges that arrive in any order; a later download continues an interrupted one."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from launcher.runner.s3.listing import Object
from launcher.runner.sync.part_file import part_of

RANGE_SIZE: Final = 16 << 20
"""Bytes of a range, and of the largest file that arrives in one piece."""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class RangedFile:
    """A file under its temporary name, with a journal of the ranges that it holds.

    The journal counts only until the node boots again: a crash may lose bytes that the journal says were written.
    """

    def __init__(self, path: str, found: Object) -> None:
        self._path = Path(path)
        self._object = found
        self.part = part_of(self._path)
        self._journal = self.part.with_name(f"{self.part.name}.ranges")
        self._missing: set[int] = set()

    def open(self) -> list[tuple[int, int]]:
        """Open or continue the file; return the start and the end of each missing range."""
        size, identity = self._object.size, self._identity()
        starts = set(range(0, size, RANGE_SIZE))
        lines = self._read_journal()
        if lines[:1] == [identity] and self.part.lstat().st_size == size:
            self._missing = starts - {int(line) for line in lines[1:]}
        else:
            self._journal.unlink(missing_ok=True)
            self.part.unlink(missing_ok=True)
            file = os.open(self.part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            os.ftruncate(file, size)
            os.close(file)
            self._missing = starts
            self._note(identity)
        return [(start, min(start + RANGE_SIZE, size)) for start in sorted(self._missing)]

    def receive(self, start: int) -> None:
        """Note that the file holds a range."""
        self._note(str(start))
        self._missing.discard(start)

    @property
    def is_complete(self) -> bool:
        """True if no range is missing."""
        return not self._missing

    def finish(self) -> None:
        """Give the file its time and its name."""
        os.utime(self.part, (self._object.modified_s, self._object.modified_s))
        self.part.replace(self._path)
        self._journal.unlink(missing_ok=True)

    def _identity(self) -> str:
        return json.dumps([self._object, RANGE_SIZE, BOOT_ID.read_text().strip()])

    def _read_journal(self) -> list[str]:
        """Return the journal's complete lines; none if there is no file for them."""
        with suppress(FileNotFoundError):
            self.part.lstat()
            return self._journal.read_text().split("\n")[:-1]
        return []

    def _note(self, line: str) -> None:
        with self._journal.open("a") as journal:
            journal.write(f"{line}\n")
