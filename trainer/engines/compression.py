"""Gradients as 16-bit numbers on the network: --gc-type fp16 or bf16, half the bytes of float32.

A ring's all-reduce would round every partial sum. Here each rank adds up one part of the vector, in float32 and in the
order of the ranks: every rank sends it that part as 16-bit numbers (all-to-all), and all get its sums back as 16-bit
numbers (all-gather). So each gradient is rounded twice, whatever the number of ranks, and to the same bits on all; the
bytes are those of a ring. Both times each part is scaled by its own largest value, which travels beside it as float32:
fp16 neither overflows nor loses small gradients.

Error of a sum, at most: fp16 (11 significant bits, two roundings) 2^-10 of the sum of the ranks' absolute values, and
2^-38 of the parts' largest values where that is more; bf16 (8 bits) 2^-7 of the sum of the absolute values.
"""

from collections.abc import Mapping
from typing import Final

import torch
import torch.distributed

TYPES: Final[Mapping[str, torch.dtype]] = {"fp16": torch.float16, "bf16": torch.bfloat16}
LARGEST: Final = 2.0**15
"""What a part's largest value becomes; float16 ends at 65,504."""
SCALE_BYTES: Final = 4


def all_reduce_compressed(vector: torch.Tensor, dtype: torch.dtype) -> None:
    """Add the float32 vector up over all ranks, in place. What is not finite stays so, and makes its part so."""
    ranks = torch.distributed.get_world_size()
    length = -(-vector.numel() // ranks)
    padded = vector.new_zeros(ranks, length)
    padded.view(-1)[: vector.numel()] = vector
    sent = _pack(padded, dtype)
    received = torch.empty_like(sent)
    torch.distributed.all_to_all_single(received, sent)
    own = _pack(_unpack(received, dtype, length).sum(dim=0, keepdim=True), dtype)
    sums = torch.empty_like(sent)
    torch.distributed.all_gather_into_tensor(sums, own)
    vector.copy_(_unpack(sums, dtype, length).view(-1)[: vector.numel()])


def _pack(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the rows as bytes: each one's scale, then its values over it."""
    largest = rows.abs().amax(dim=1, keepdim=True)
    # A row of zeros, or one that holds inf or nan, is sent as it is.
    scale = torch.where((largest > 0) & largest.isfinite(), largest / LARGEST, 1.0)
    # Values too small to be divided by: subnormal.
    scale = torch.where(scale > 0, scale, 1.0)
    values = (rows / scale).to(dtype)
    return torch.cat([scale.view(torch.uint8), values.view(torch.uint8)], dim=1)


def _unpack(packed: torch.Tensor, dtype: torch.dtype, length: int) -> torch.Tensor:
    """Return the rows as float32, shape (rows, length)."""
    scale = packed[:, :SCALE_BYTES].contiguous().view(torch.float32)
    values = packed[:, SCALE_BYTES:].contiguous().view(dtype)
    return values[:, :length].float() * scale
