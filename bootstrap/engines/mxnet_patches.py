"""Mend MXNet 1.9.1 where a process imports it; a copy of this lies in the environment, and a .pth file runs it.

NumPy has dropped its names for Python's own types, which MXNet, and scripts of its time, still use.

At exit MXNet skips what its engine has not begun, the last gradients too, while it waits for the servers: another
worker has sent its share of those gradients and waits for ever. The kvstore would wait for them when it is
freed, but ``Module.fit`` with a ``batch_end_callback`` leaves a cycle of references that keeps it until after that.
"""

import atexit
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec

TYPES = (bool, int, float, complex, object, str)
"""What ``numpy.bool`` and the like were until NumPy 1.24."""


class Finder:
    """Waits on ``sys.meta_path`` for the first import of MXNet; costs a comparison an import."""

    def find_spec(self, name: str, path: "Sequence[str] | None" = None, target: Any = None) -> "ModuleSpec | None":
        """Let the others find MXNet, and have it mended when it runs; many look for it and import it later or never."""
        if name != "mxnet":
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        loader: Any = spec and spec.loader
        if loader is not None:
            run = loader.exec_module
            loader.exec_module = lambda module: self.run_patched(run, module)
        return spec

    def run_patched(self, run: "Callable[[ModuleType], None]", module: ModuleType) -> None:
        """Run MXNet, the names before it and the wait after it."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        restore_names()
        run(module)
        # Registered after MXNet's own, so that it runs before it. Servers never come here: they end in the import.
        atexit.register(module.nd.waitall)


def restore_names() -> None:
    """Give NumPy the names that it had."""
    import numpy

    for kind in TYPES:
        vars(numpy).setdefault(kind.__name__, kind)


sys.meta_path.insert(0, Finder())
