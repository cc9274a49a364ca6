"""Run a script, and check that it frees DistributedDataParallel before its process group.

The arguments are the script, or ``trainer``, and its own arguments. Each run needs a new process: only the first model
that a process makes is in a reference cycle.
"""

import gc
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch.distributed
from torch.nn.parallel import DistributedDataParallel


@contextmanager
def checking_order() -> Iterator[None]:
    """Fail when a process group is destroyed while a model lives."""
    destroy_process_group = torch.distributed.destroy_process_group

    def check_and_destroy() -> None:
        models = [thing for thing in gc.get_objects() if type(thing) is DistributedDataParallel]
        assert not models, "DistributedDataParallel has outlived its use"
        destroy_process_group()

    # Otherwise it depends on the script's length whether the collector happens to have freed the model.
    gc.disable()
    with patch("torch.distributed.destroy_process_group", check_and_destroy):
        yield


if __name__ == "__main__":
    del sys.argv[0]
    script = sys.argv[0]
    with checking_order():
        if script.endswith(".py"):
            sys.path.insert(0, str(Path(script).parent))
            runpy.run_path(script, run_name="__main__")
        else:
            runpy.run_module(script, run_name="__main__")
