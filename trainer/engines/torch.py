"""The PyTorch engine: gloo between CPUs, NCCL between GPUs, one process a device.

All weights lie in one vector, and so do all gradients. One all-reduce a step sums them: between CPUs
a ring of our own (trainer.engines.ring), and gloo for the rest.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import torch
import torch.distributed
from torch import nn
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.nn.functional import cross_entropy

from trainer.config import TrainConfig
from trainer.data import Images, Labels
from trainer.engines import NOTHING, Asks, BatchResult, Connection, State, Weights
from trainer.engines.batch_norm import adapt, place_statistics
from trainer.engines.device import choose_device, set_threads
from trainer.engines.flops import find_peak_speed
from trainer.engines.meeting import MEETING_TIMEOUT, RANKS_TIMEOUT, connect_ring, join, report_lost_ranks
from trainer.engines.ring import Ring
from trainer.errors import TrainerError
from trainer.models import build
from trainer.phases import COMMUNICATION, Phases
from trainer.ranks import Ranks, describe_process
from trainer.sampling import Shard

log = logging.getLogger(__name__)

MOMENTUM: Final = "momentum"


def connect(config: TrainConfig, environment: Mapping[str, str]) -> Connection:
    """Read the rank from torchrun's variables; the others are met when the network is made."""
    return Connection(ranks=Ranks.from_environment(environment), create=create)


def create(config: TrainConfig, *, ranks: Ranks, shard: Shard, learning_rate: float) -> "TorchEngine":
    """Build the network on this rank's device and join the other ranks if it shares their work."""
    set_threads(ranks, os.environ)
    device = torch.device(choose_device(config.gpus, ranks=ranks, available=torch.cuda.device_count()))
    log.info("%s device=%s threads=%d", describe_process(os.environ), device, torch.get_num_threads())
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(config.seed)
    # Before the ranks meet: a network that cannot be built is reported without waiting for them.
    model = build(config.network, classes=config.classes, image_shape=config.input_shape)
    ring = None
    peak_speed = find_peak_speed(model, device=device, image_shape=config.input_shape)
    if shard.count > 1:
        join(device, ranks=ranks, timeout=MEETING_TIMEOUT)
        ring = connect_ring(ranks, timeout=MEETING_TIMEOUT) if device.type == "cpu" else None
    return TorchEngine(
        model,
        device=device,
        shard=shard,
        ring=ring,
        learning_rate=learning_rate,
        momentum=config.mom,
        weight_decay=config.wd,
        sync_bn=config.sync_bn,
        peak_speed=peak_speed,
    )


class TorchEngine:
    """See trainer.engines.Engine."""

    def __init__(
        self,
        model: nn.Module,
        *,
        device: torch.device,
        shard: Shard,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
        sync_bn: bool = False,
        ring: Ring | None = None,
        peak_speed: float | None = None,
    ) -> None:
        self.phases = Phases()
        self.peak_speed = peak_speed
        self._model = model.to(device)
        self._device = device
        self._connected = shard.count > 1
        self._ring = ring
        # Its collective operations need a part of every rank in every forward and backward pass.
        self._all_ranks_pass = sync_bn and self._connected
        self._timeout = MEETING_TIMEOUT
        adapt(self._model, all_reduce=self._all_reduce if self._all_ranks_pass else None)
        self._statistics = place_statistics(self._model)
        parameters = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        weights = nn.utils.parameters_to_vector(parameters).detach()
        nn.utils.vector_to_parameters(weights, parameters)
        # The gradients, and behind them the running statistics of BatchNorm, the loss and what the ranks ask for:
        # one all-reduce sums all.
        self._sums = weights.new_zeros(weights.numel() + self._statistics.numel() + 3)
        sizes = [weights.numel(), self._statistics.numel(), 1, 2]
        gradients, self._statistics_sum, self._loss, self._asked = torch.split(self._sums, sizes)
        _place_gradients(parameters, gradients)
        self._vector = nn.Parameter(weights)
        self._vector.grad = gradients
        self._optimizer = torch.optim.SGD(
            [self._vector], lr=learning_rate, momentum=momentum, weight_decay=weight_decay
        )
        # What SGD itself would make in the first step.
        self._momentum = torch.zeros_like(weights)
        self._optimizer.state[self._vector]["momentum_buffer"] = self._momentum

    def seed(self, number: int) -> None:
        """Begin this rank's random numbers anew."""
        torch.manual_seed(number)

    def compute_gradients(self, images: Images, labels: Labels, *, asks: Asks = NOTHING) -> BatchResult:
        """Sum the gradients of the loss over the samples of all ranks, and what the ranks ask for."""
        self._sums.zero_()
        correct = 0
        if len(labels) or self._all_ranks_pass:
            targets = torch.from_numpy(labels).to(self._device)
            scores = self._model(torch.from_numpy(images).to(self._device))
            loss = cross_entropy(scores, targets, reduction="sum")
            self.phases.end("forward")
            torch.autograd.backward(loss)
            self._loss.copy_(loss.detach())
            correct = int((scores.argmax(dim=1) == targets).sum())
            self.phases.end("backward")
        if self._connected:
            # By samples, as the gradients: update() makes means of both.
            torch.mul(self._statistics, len(labels), out=self._statistics_sum)
        if asks != NOTHING:
            self._asked.copy_(torch.tensor([asks.save, asks.stop]))
        self._all_reduce(self._sums)
        loss_sum, save, stop = self._sums[-3:].tolist()
        self.phases.end(COMMUNICATION)
        self._expect_steps()
        return BatchResult(loss_sum=loss_sum, correct=correct, asks=Asks(save=save > 0, stop=stop > 0))

    def set_learning_rate(self, rate: float) -> None:
        """Use it from the next update on."""
        self._optimizer.param_groups[0]["lr"] = rate

    def update(self, *, samples: int) -> None:
        """Change the weights by the mean gradient over the ``samples`` of all ranks."""
        self._sums.div_(samples)
        self._optimizer.step()
        if self._connected:
            self._statistics.copy_(self._statistics_sum)

    def count_correct(self, images: Images, labels: Labels) -> int:
        """Return how many of these images the network recognises."""
        if not len(labels):
            return 0
        self._model.eval()
        with torch.inference_mode():
            found = self._model(torch.from_numpy(images).to(self._device)).argmax(dim=1).cpu()
        self._model.train()
        return int((found == torch.from_numpy(labels)).sum())

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Add up each value over all ranks."""
        sums = torch.tensor(values, dtype=torch.float64, device=self._device)
        self._all_reduce(sums)
        return [float(value) for value in sums.tolist()]

    def weights(self) -> Weights:
        """Return a copy of the weights."""
        return {name: value.cpu().numpy().copy() for name, value in self._model.state_dict().items()}

    def state(self) -> State:
        """Return a copy of all that a checkpoint needs."""
        return State(weights=self.weights(), optimizer={MOMENTUM: self._momentum.cpu().numpy().copy()})

    def restore(self, state: State | None, *, source: int) -> None:
        """Take over the state that the rank ``source`` has, or its new weights; on the others it is None."""
        if state is not None:
            own = self._model.state_dict()
            if {name: value.shape for name, value in own.items()} != {n: v.shape for n, v in state.weights.items()}:
                raise TrainerError("the checkpoint is of a network with other weights: --resume never begins anew")
            for name, value in state.weights.items():
                own[name].copy_(torch.from_numpy(value.copy()))
            self._momentum.copy_(torch.from_numpy(state.optimizer[MOMENTUM].copy()))
        self._send_state("the weights", source=source)

    def expect_pause(self, seconds: float) -> None:
        """Let the other ranks be silent for so long from now on."""
        self._be_patient(timedelta(seconds=seconds))

    def close(self) -> None:
        """Leave the other ranks."""
        if self._ring is not None:
            self._ring.close()
        if self._connected:
            torch.distributed.destroy_process_group()

    def _send_state(self, what: str, *, source: int) -> None:
        """Give all ranks the weights, buffers and momentum of one."""
        if not self._connected:
            return
        frozen = [parameter.detach() for parameter in self._model.parameters() if not parameter.requires_grad]
        with report_lost_ranks(f"sending {what} to all ranks", timeout=self._timeout):
            for tensor in (self._vector.detach(), self._momentum, *frozen, *self._model.buffers()):
                torch.distributed.broadcast(tensor, src=source)

    def _expect_steps(self) -> None:
        """All ranks have made a step: from now on none has a reason to be slow."""
        self._be_patient(RANKS_TIMEOUT)

    def _be_patient(self, timeout: timedelta) -> None:
        if self._connected and self._timeout != timeout:
            self._timeout = timeout
            # Torch has no public name for it; the group was made with the timeout of the start.
            _set_pg_timeout(timeout)

    def _all_reduce(self, sums: torch.Tensor) -> None:
        if not self._connected:
            return
        with report_lost_ranks("adding up over all ranks", timeout=self._timeout):
            if self._ring is None:
                torch.distributed.all_reduce(sums)
            else:
                self._ring.all_reduce(sums.view(-1).numpy(), timeout_s=self._timeout.total_seconds())


def _place_gradients(parameters: Sequence[nn.Parameter], vector: torch.Tensor) -> None:
    """Let every parameter's gradient be a part of one vector; backward() adds to it in place."""
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
