"""What goes wrong with an environment."""

from bootstrap.errors import BootstrapError


class EnginesError(BootstrapError):
    """The node's environment cannot be had; ``short`` fits into a failure signal."""

    reason = "engines-failed"

    def __init__(self, short: str, detail: str) -> None:
        super().__init__(detail)
        self.short = short
