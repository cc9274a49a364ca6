"""Read idx files, the format of MNIST and similar datasets, gzipped or not.

The format: http://yann.lecun.com/exdb/mnist/ (two zero bytes, a type, the number of dimensions, the dimensions as
big-endian 32-bit numbers, the values).
"""

import math
import struct
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.data.file_io import read
from trainer.errors import TrainerError

UNSIGNED_BYTE: Final = 8


def read_idx(path: Path, *, dimensions: int) -> NDArray[np.uint8]:
    """Return the file's values as an array; TrainerError, with the file's name, if it is damaged."""
    content = read(path)
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise TrainerError(f"{path} is truncated, {len(content)} bytes are less than its header")
    expected = bytes((0, 0, UNSIGNED_BYTE, dimensions))
    if content[:4] != expected:
        raise TrainerError(
            f"{path} is not an idx file of bytes in {dimensions} dimensions, "
            f"starts with {content[:4].hex()} instead of {expected.hex()}"
        )
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if len(content) - header != math.prod(shape):
        raise TrainerError(f"{path} is damaged, has {len(content) - header} values, its header says {math.prod(shape)}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
