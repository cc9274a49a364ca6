"""What goes wrong with an environment."""

from bootstrap.errors import BootstrapError


class FrameworkError(BootstrapError):
    """The node's environment cannot be had; ``short`` fits into a failure signal.

    ``lasting``: it would fail again, however often it is tried.
    """

    reason = "engines-failed"

    def __init__(self, short: str, detail: str, *, lasting: bool = False) -> None:
        super().__init__(detail)
        self.short = short
        self.lasting = lasting
