"""Sum gradients sent as 16-bit numbers: --gc-type fp16 or bf16, half the bytes of float32.

A ring all-reduce would round every partial sum. Here each rank sums one part of the tensor, in float32 and in rank
order: every rank sends it that part (all-to-all), and it sends the sum back (all-gather). Three levels:

1. The ranks of a node exchange and sum parts, in float32.
2. The ranks with the same local rank sum their part over the nodes, in 16-bit numbers.
3. The ranks of a node exchange the sums, in float32.

So values are rounded twice, as a node's sum and as the total, whatever the number of ranks, and all ranks get the same
bits. For S values each of N nodes sends 4 S (N-1)/N bytes to the others: half of a ring in float32. Without process
groups each rank counts as a node.

Each rounding scales a part by its largest value, sent with it as float32, so that fp16 neither overflows nor loses
small gradients. Largest error of a sum: fp16 (11 significant bits) 2^-10 of the sum of the nodes' absolute sums,
which is at most the sum of the ranks' absolute values, plus 2^-38 of the sum of the parts' largest values; bf16 (8
bits) 2^-7 of the sum of the absolute values; plus float32's own rounding, 2^-24 of that sum for each of n + 4
operations.
"""

from collections.abc import Mapping
from typing import Final

import torch
import torch.distributed
from torch.distributed import ProcessGroup

from trainer.distributed.process_groups import ProcessGroups

TYPES: Final[Mapping[str, torch.dtype]] = {"fp16": torch.float16, "bf16": torch.bfloat16}
MAX_SCALED: Final = 2.0**15
"""Value to which a part's largest value is scaled; float16 ends at 65,504."""
SCALE_BYTES: Final = 4


def all_reduce_compressed(vector: torch.Tensor, dtype: torch.dtype, *, groups: ProcessGroups) -> None:
    """Replace the float32 tensor by its sum over all ranks. A value that is not finite makes its part not finite."""
    if groups.intra_node is None:
        _all_reduce_rounded(vector, dtype, group=groups.inter_node)
        return
    parts = _cut(vector, group=groups.intra_node)
    others = torch.empty_like(parts)
    torch.distributed.all_to_all_single(others, parts, group=groups.intra_node)
    part_sum = others.sum(dim=0, keepdim=True)
    _all_reduce_rounded(part_sum, dtype, group=groups.inter_node)
    torch.distributed.all_gather_into_tensor(parts, part_sum, group=groups.intra_node)
    vector.copy_(parts.view(-1)[: vector.numel()])


def _all_reduce_rounded(vector: torch.Tensor, dtype: torch.dtype, *, group: ProcessGroup | None) -> None:
    """Replace the tensor by its sum over the group's ranks."""
    parts = _cut(vector, group=group)
    length = parts.shape[1]
    sent = _pack(parts, dtype)
    received = torch.empty_like(sent)
    torch.distributed.all_to_all_single(received, sent, group=group)
    part_sum = _pack(_unpack(received, dtype, length).sum(dim=0, keepdim=True), dtype)
    sums = torch.empty_like(sent)
    torch.distributed.all_gather_into_tensor(sums, part_sum, group=group)
    vector.copy_(_unpack(sums, dtype, length).view(-1)[: vector.numel()].view_as(vector))


def _cut(vector: torch.Tensor, *, group: ProcessGroup | None) -> torch.Tensor:
    """Return a copy cut into equal parts, one per rank of the group, padded with zeros."""
    ranks = torch.distributed.get_world_size(group)
    parts = vector.new_zeros(ranks, -(-vector.numel() // ranks))
    parts.view(-1)[: vector.numel()] = vector.view(-1)
    return parts


def _pack(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the rows as bytes: each row's scale, followed by its values divided by it."""
    largest = rows.abs().amax(dim=1, keepdim=True)
    # Send a row of zeros, or one with inf or nan, unscaled.
    scale = torch.where((largest > 0) & largest.isfinite(), largest / MAX_SCALED, 1.0)
    # The same goes for a row whose scale would be too small to divide by (subnormal values).
    scale = torch.where(scale > 0, scale, 1.0)
    values = (rows / scale).to(dtype)
    return torch.cat([scale.view(torch.uint8), values.view(torch.uint8)], dim=1)


def _unpack(packed: torch.Tensor, dtype: torch.dtype, length: int) -> torch.Tensor:
    """Return the rows as float32, shape (rows, length)."""
    scale = packed[:, :SCALE_BYTES].contiguous().view(torch.float32)
    values = packed[:, SCALE_BYTES:].contiguous().view(dtype)
    return values[:, :length].float() * scale
