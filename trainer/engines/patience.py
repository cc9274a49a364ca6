"""How long a rank waits for the others, whatever the engine."""

from typing import Final

MEETING_S: Final = 600.0
"""At the start: a new machine reads the engine from its image for the first time, block by block
("Initialize Amazon EBS volumes"), and not all are equally quick."""
FETCH_S: Final = 3600.0
"""For a data set in S3, which other machines may have already: 150 GB, ImageNet's size, at 350 Mbit/s."""
RANKS_S: Final = 60.0
"""In a collective operation, from the first step's on: that step, too, reads libraries from an image."""
