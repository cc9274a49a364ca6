"""The trainer where cuDNN and cuBLAS give the same bits every time (PyTorch, "Reproducibility")."""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch

from trainer.main import main_and_leave

if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    main_and_leave()
