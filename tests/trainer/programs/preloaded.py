"""Load torch as a trainer process does: imported once, by the server from which programs.forked forks ranks."""

import os
from importlib import import_module

# These libraries read it when they are loaded; tests.trainer.programs.processes and trainer.backend set it likewise.
os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TORCH_CPP_LOG_LEVEL": "ERROR"}
import_module("torch")
