"""Send tensors and values from one rank to all others."""

import json
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed

from trainer.cuda_streams import record_event, wait_for
from trainer.distributed.reduce.reducers import Communicator
from trainer.distributed.rendezvous import report_lost_ranks


def broadcast(tensors: Iterable[torch.Tensor], *, what: str, source: int, communicator: Communicator) -> None:
    """Replace the tensors of all ranks by those of the rank ``source``."""
    if not communicator.is_distributed:
        return
    with report_lost_ranks(f"sending {what} to all ranks", timeout=communicator.timeout):
        for tensor in tensors:
            torch.distributed.broadcast(tensor, src=source)
            wait_for(record_event(tensor.device), timeout_s=communicator.timeout_s)


def broadcast_object(value: Any, *, source: int, device: torch.device, communicator: Communicator) -> Any:
    """Return the value of the rank ``source`` on every rank; JSON must be able to represent it.

    Like torch.distributed.broadcast_object_list, but with a timeout when a rank is lost.
    """
    if not communicator.is_distributed:
        return value
    content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(device)
    size = torch.tensor([content.numel()], device=device)
    broadcast([size], what="the size of a message", source=source, communicator=communicator)
    if torch.distributed.get_rank() != source:
        content = content.new_empty(int(size))
    broadcast([content], what="a message", source=source, communicator=communicator)
    return json.loads(bytes(content.tolist()))
