"""The learning rate that MXNet's momentum holds: the same on all ranks, to the last bit.

Its momentum grows with every change of the rate by the quotient of the two. A training that goes on in the midst of a
warm-up has the momentum of the undisturbed one only if it divides by the same rate: rounded to the float32 that the
ranks' arrays are of, that would be another in the last place.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from numpy.typing import NDArray

RATE: Final = "mxnet_rate"
"""Name in a checkpoint."""


def agree_on_rate(
    own: float, *, kept: Mapping[str, NDArray[Any]] | None, add_up: Callable[[Sequence[float]], list[float]]
) -> float:
    """Return the rate that the one rank with a checkpoint has ``kept``, or this rank's own where none has.

    ``add_up`` adds up each value over all ranks, as float64.
    """
    known, rate = add_up([0.0, 0.0] if kept is None or RATE not in kept else [1.0, float(kept[RATE])])
    return rate if known else own
