"""Patch MXNet 1.9.1 when a process imports it. The environment has a copy of this file, imported by a .pth file.

NumPy has removed its aliases of Python's types, which MXNet and scripts of its time still use.

At exit MXNet skips operations that its engine has not started, the last gradients included, and waits for the servers:
another worker that has sent its share of those gradients never gets an answer. Freeing the kvstore would wait for them,
but ``Module.fit`` with a ``batch_end_callback`` leaves a reference cycle that keeps it alive past the exit.
"""

import atexit
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec

TYPES = (bool, int, float, complex, object, str)
"""Values of ``numpy.bool`` and similar names until NumPy 1.24."""


class Finder:
    """Import hook on ``sys.meta_path`` for the first import of MXNet; costs one comparison per import."""

    def find_spec(self, name: str, path: "Sequence[str] | None" = None, target: Any = None) -> "ModuleSpec | None":
        """Delegate to the other finders and wrap the loader, so that the patch runs only on a real import."""
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
        """Restore NumPy's old names, run MXNet's import, then register waitall at exit."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        restore_names()
        run(module)
        # Registered after MXNet's own handler, so that it runs before it. Servers end in the import, before this line.
        atexit.register(module.nd.waitall)


def restore_names() -> None:
    """Restore the names that NumPy has removed."""
    import numpy

    for kind in TYPES:
        vars(numpy).setdefault(kind.__name__, kind)


sys.meta_path.insert(0, Finder())
