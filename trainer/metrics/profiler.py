"""Trace some steps, for chrome://tracing or https://ui.perfetto.dev: --profile-steps 10-12."""

import logging
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from trainer.atomic_file import temporary_path
from trainer.errors import TrainerError

if TYPE_CHECKING:
    from torch.profiler import profile

log = logging.getLogger(__name__)

SUFFIX: Final = ".pt.trace.json"
"""Suffix of the traces that TensorBoard's profiler plugin finds."""


class Profiler(AbstractContextManager["Profiler"]):
    """Counts the steps of this run, from 1, and traces the requested ones, by default none."""

    def __init__(self, steps: tuple[int, int] | None = None, *, directory: str = "", rank: int = 0) -> None:
        """Create the directory; ``steps`` are the first and the last step. Raises TrainerError."""
        self._steps = steps
        self._step = 0
        self._profiler: profile | None = None
        if steps is not None:
            first, last = steps
            self._path = Path(directory).expanduser() / f"steps-{first}-{last}-rank{rank}{SUFFIX}"
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise TrainerError(f"cannot write profiles to {self._path.parent}: {error.strerror}") from error

    def begin_step(self) -> None:
        """Begin a step, which ends at the next call."""
        if self._steps is None:
            return
        self._step += 1
        if self._step == self._steps[0]:
            self._start()
        elif self._step == self._steps[1] + 1:
            self._write()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the trace so far."""
        self._write()
        if self._steps is not None and self._step < self._steps[1]:
            log.warning("this run had %d steps, --profile-steps asks for %d to %d", self._step, *self._steps)

    def _start(self) -> None:
        # Imported here: only this option needs it, and only PyTorch's environment has it.
        from torch.profiler import profile

        self._profiler = profile(record_shapes=True)
        self._profiler.start()

    def _write(self) -> None:
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        temporary = temporary_path(self._path)
        try:
            profiler.stop()
            profiler.export_chrome_trace(str(temporary))
            temporary.replace(self._path)
        except (OSError, RuntimeError) as error:
            # A failed trace must not end the run.
            temporary.unlink(missing_ok=True)
            log.warning("no trace in %s: %s", self._path, error)
        else:
            log.info("trace of the steps in %s, for https://ui.perfetto.dev", self._path)
