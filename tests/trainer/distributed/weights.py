"""Compare the weights of trained models; options of a short dist_sync training."""

import numpy as np

from trainer.backend import Weights

EPOCHS = 2
OPTIONS = (
    *("--last-batch", "keep"),
    *("--benchmark", "1", "--num-epochs", str(EPOCHS), "--lr", "0.001"),
    *("--kv-store", "dist_sync", "--model-prefix", "net"),
)


def distance(weights: Weights, others: Weights) -> float:
    """Return the relative L2 distance of all weights."""
    assert list(weights) == list(others)
    one, other = (np.concatenate([value.ravel() for value in arrays.values()]) for arrays in (weights, others))
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))
