"""Run SGD on dist_async's servers, which import this module when a worker sends them the optimizer.

They do so during their own ``import mxnet``, so only parts of MXNet can be imported here.
"""

from typing import TYPE_CHECKING, Any

from mxnet.optimizer import SGD

if TYPE_CHECKING:
    from mxnet.ndarray import NDArray


class ServerSGD(SGD):  # type: ignore[misc]  # MXNet has no types
    """SGD for weights; values that ranks exchange (keys from ``rows_from`` on) are stored as they are."""

    def __init__(self, *, rows_from: int, **settings: Any) -> None:
        super().__init__(**settings)
        self._rows_from = rows_from
        # Update one key at a time; otherwise keys come in lists.
        self.aggregate_num = 0

    def update_multi_precision(self, index: int, weight: "NDArray", grad: "NDArray", state: "NDArray") -> None:
        """Update the value of a key with what a worker has sent."""
        if index >= self._rows_from:
            weight[:] = grad
        else:
            super().update_multi_precision(index, weight, grad, state)
