"""Reserve TCP ports like a launch, so that they are still free when a test uses them."""

from collections.abc import Iterator
from contextlib import contextmanager

from launcher.runner.port import claim_port


@contextmanager
def held_port() -> Iterator[int]:
    """Yield a port that no other test, launch or outgoing connection of this machine gets inside the block."""
    claim = claim_port()
    try:
        yield claim.port
    finally:
        claim.close()
