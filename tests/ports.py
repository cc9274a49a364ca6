"""TCP ports that are still free when they are taken: claimed as a launch does, until the test is done with them."""

from collections.abc import Iterator
from contextlib import contextmanager

from launcher.runner.port import claim_port


@contextmanager
def held_port() -> Iterator[int]:
    """A port that no other test, launch or outgoing connection of this machine gets inside the block."""
    claim = claim_port()
    try:
        yield claim.port
    finally:
        claim.close()
