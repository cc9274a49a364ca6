"""The PyTorch engine: gloo between CPUs, NCCL between GPUs, one process a device.

All weights lie in one vector, and so do all gradients. One all-reduce a step sums them, which on
CPUs is as fast as DistributedDataParallel's overlapped buckets: there is no idle core to overlap on.
"""

import logging
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from trainer.engines.patience import MEETING_S, RANKS_S
from trainer.errors import TrainerError, UsageError
from trainer.models import build
from trainer.phases import COMMUNICATION, Phases
from trainer.ranks import Ranks, describe_process
from trainer.sampling import Shard

log = logging.getLogger(__name__)

MEETING_TIMEOUT: Final = timedelta(seconds=MEETING_S)
RANKS_TIMEOUT: Final = timedelta(seconds=RANKS_S)
LISTENER_POLL_S: Final = 0.1
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
    if shard.count > 1:
        join(device, ranks=ranks, timeout=MEETING_TIMEOUT)
    return TorchEngine(
        model,
        device=device,
        shard=shard,
        learning_rate=learning_rate,
        momentum=config.mom,
        weight_decay=config.wd,
        sync_bn=config.sync_bn,
    )


def set_threads(ranks: Ranks, environment: Mapping[str, str]) -> None:
    """Share the machine's cores among its processes, unless the user set OMP_NUM_THREADS."""
    if "OMP_NUM_THREADS" not in environment:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks.local_world_size))


def choose_device(gpus: Sequence[int], *, ranks: Ranks, available: int) -> str:
    """Return the device of this process: one of ``gpus``, or of all GPUs, or else the CPU."""
    if not gpus and not available:
        return "cpu"
    if gpus and len(gpus) != ranks.local_world_size:
        raise UsageError(
            f"--gpus needs one process a GPU on each machine, got {len(gpus)} GPUs "
            f"and {ranks.local_world_size} processes"
        )
    gpu = gpus[ranks.local_rank] if gpus else ranks.local_rank
    if gpu >= available:
        raise UsageError(f"no GPU {gpu} on this machine, torch sees {available}")
    return f"cuda:{gpu}"


def join(device: torch.device, *, ranks: Ranks, timeout: timedelta) -> None:
    """Meet the other ranks at MASTER_ADDR:MASTER_PORT."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    address = f"{host}:{port}"
    log.info("waiting for %d ranks at %s, at most %.0f s", ranks.world_size, address, timeout.total_seconds())
    if ranks.rank > 0:
        wait_for_listener(host, port, timeout=timeout)
    with report_lost_ranks(f"meeting {ranks.world_size} ranks at {address}", timeout=timeout):
        torch.distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method="env://",
            rank=ranks.rank,
            world_size=ranks.world_size,
            timeout=timeout,
            device_id=device if device.type == "cuda" else None,
        )


def wait_for_listener(host: str, port: int, *, timeout: timedelta) -> None:
    """Wait until rank 0 listens. Torch itself would wait twice the timeout and then print its stack."""
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            socket.create_connection((host, port), timeout=max(0.1, deadline - time.monotonic())).close()
        except OSError as error:
            if time.monotonic() >= deadline:
                seconds = timeout.total_seconds()
                raise TrainerError(f"rank 0 does not answer at {host}:{port} for {seconds:.0f} s: {error}") from error
            time.sleep(LISTENER_POLL_S)
        else:
            return


@contextmanager
def report_lost_ranks(action: str, *, timeout: timedelta) -> Iterator[None]:
    """Turn torch's error of a failed connection into one line."""
    try:
        yield
    except RuntimeError as error:
        seconds = timeout.total_seconds()
        raise TrainerError(
            f"{action} failed, another rank ended or was not heard from for {seconds:.0f} s: {shorten(str(error))}"
        ) from error


def shorten(message: str) -> str:
    """Return the first sentence of a message of torch's, without the source file it may start with."""
    return re.sub(r"^\[\S+:\d+\] ", "", message.strip()).partition("\n")[0].partition(". ")[0]


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
    ) -> None:
        self.phases = Phases()
        self._model = model.to(device)
        self._device = device
        self._connected = shard.count > 1
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
        if self._connected:
            with report_lost_ranks("adding up over all ranks", timeout=self._timeout):
                torch.distributed.all_reduce(sums)


def _place_gradients(parameters: Sequence[nn.Parameter], vector: torch.Tensor) -> None:
    """Let every parameter's gradient be a part of one vector; backward() adds to it in place."""
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
