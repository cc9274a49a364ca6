"""The optimizer that dist_async's servers run; they import this module when a worker sends it.

That is in the midst of their ``import mxnet``: only parts of it can be imported here.
"""

from typing import TYPE_CHECKING, Any

from mxnet.optimizer import SGD

if TYPE_CHECKING:
    from mxnet.ndarray import NDArray


class ServerSGD(SGD):  # type: ignore[misc]  # MXNet has no types
    """SGD for weights; what ranks tell each other (keys from ``rows_from`` on) is taken as it is."""

    def __init__(self, *, rows_from: int, **settings: Any) -> None:
        super().__init__(**settings)
        self._rows_from = rows_from
        # One key at a time: otherwise keys come in lists.
        self.aggregate_num = 0

    def update_multi_precision(self, index: int, weight: "NDArray", grad: "NDArray", state: "NDArray") -> None:
        """Change the value of a key by what a worker has sent."""
        if index >= self._rows_from:
            weight[:] = grad
        else:
            super().update_multi_precision(index, weight, grad, state)
