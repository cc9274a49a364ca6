"""Images and their labels: bytes in memory or on disk, made ready batch by batch.

The way through it: catalogue (what there is) -> opening (one file a data set) -> samples (bytes) -> batches (augmented
and normalised, one batch ahead of the training).
"""

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.float32]
"""Shape (samples, channels, height, width), normalised: what a network sees."""
Pixels = NDArray[np.uint8]
"""Shape (samples, channels, height, width), from 0 to 255: what a data set holds."""
Labels = NDArray[np.int64]
"""Shape (samples,): the number of each one's class, from 0."""
