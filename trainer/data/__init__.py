"""Open datasets and prepare their batches.

From the dataset to the network: config/datasets (the list) -> open_dataset (one module per dataset) -> dataset (bytes
in memory or on disk) -> sampling (which samples, in which order) -> batches (augmented, normalized, prefetched).
"""

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.float32]
"""Shape (samples, channels, height, width), normalized for the network."""
Pixels = NDArray[np.uint8]
"""Shape (samples, channels, height, width), from 0 to 255, as stored in a dataset."""
Labels = NDArray[np.int64]
"""Shape (samples,): the class of each image, from 0."""
