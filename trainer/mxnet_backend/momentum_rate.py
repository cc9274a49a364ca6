"""Agree on the learning rate that MXNet's momentum includes: the same on all ranks, to the last bit.

MXNet's momentum is scaled by the quotient of the rates whenever the rate changes. A run that resumes in the middle of a
warm-up gets the momentum of an uninterrupted one only if it divides by the same rate. So the rate is sent as a float64:
rounded to float32, like the ranks' arrays, it would differ in the last place.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from numpy.typing import NDArray

RATE: Final = "mxnet_rate"
"""Name in a checkpoint."""


def agree_on_rate(
    current_rate: float,
    *,
    kept: Mapping[str, NDArray[Any]] | None,
    all_reduce: Callable[[Sequence[float]], list[float]],
) -> float:
    """Return the rate in the checkpoint of the rank that has one, or this rank's rate if no rank has a checkpoint.

    ``kept`` is the optimizer's state in this rank's checkpoint; ``all_reduce`` sums float64 over all ranks.
    """
    known, rate = all_reduce([0.0, 0.0] if kept is None or RATE not in kept else [1.0, float(kept[RATE])])
    return rate if known else current_rate
