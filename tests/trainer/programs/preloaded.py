"""Load torch as a trainer process does: imported once, by the server that programs.forked forks ranks from."""

import os
from importlib import import_module

# What these libraries read when they are loaded: as tests.trainer.programs.processes and trainer.backend set it.
os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TORCH_CPP_LOG_LEVEL": "ERROR"}
import_module("torch")
