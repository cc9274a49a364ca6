"""The PyTorch engine: gloo between CPUs, NCCL between GPUs, one process a device.

All weights lie in one vector, and so do all gradients, which are summed over the ranks in one all-reduce a step, or
in several beside the backward pass (trainer.engines.reduction).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from trainer.config import TrainConfig
from trainer.data import Images, Labels
from trainer.data.batches import prepare
from trainer.data.samples import DataSet
from trainer.engines import NOTHING, NOTHING_YET, Asks, BatchResult, Connection, Reader, State, Weights
from trainer.engines.batch_norm import adapt, place_statistics
from trainer.engines.collective import Collective
from trainer.engines.compression import TYPES
from trainer.engines.delivery import Placed, device_reader, place_batch, split
from trainer.engines.device import prepare_device, seed_device
from trainer.engines.failures import report_failed_step
from trainer.engines.fast import METHOD, chooser, decode, encode, method_of
from trainer.engines.flops import count_flops, find_peak_speed
from trainer.engines.late import Figures
from trainer.engines.meeting import MEETING_TIMEOUT, connect_ring, join
from trainer.engines.method import DTYPES, EXACT, Method, given_method
from trainer.engines.nodes import Nodes, find_nodes
from trainer.engines.patience import meeting_s
from trainer.engines.precision import Precision
from trainer.engines.reduction import Reduction
from trainer.engines.ring import Ring
from trainer.engines.sgd import Sgd
from trainer.engines.snapshots import Snapshots
from trainer.engines.states import MOMENTUM, SCALE, VECTOR, load_weights, pack
from trainer.engines.streams import read
from trainer.engines.vectors import fill, flattened, parts, place, place_gradients
from trainer.models import build
from trainer.phases import COMMUNICATION, Phases
from trainer.ranks import Ranks
from trainer.sampling import Shard


def connect(config: TrainConfig, environment: Mapping[str, str]) -> Connection:
    """Read the rank from torchrun's variables; the others are met when the network is made."""
    return Connection(ranks=Ranks.from_environment(environment), create=create)


def create(config: TrainConfig, *, ranks: Ranks, shard: Shard, learning_rate: float) -> "TorchEngine":
    """Build the network on this rank's device and join the other ranks if it shares their work."""
    device = prepare_device(config, ranks, os.environ)
    torch.manual_seed(config.seed)
    # Before the ranks meet: a network that cannot be built is reported without waiting for them.
    model = build(config.network, classes=config.classes, image_shape=config.input_shape)
    given = given_method(config, model)
    make = partial(
        TorchEngine,
        device=device,
        learning_rate=learning_rate,
        momentum=config.mom,
        weight_decay=config.wd,
        sync_bn=config.sync_bn,
        accumulation=config.gradient_accumulation,
        late=device.type == "cuda",
    )
    choose = chooser(config, given, model, make=partial(make, shard=Shard()), ranks=ranks, device=device)
    flops = count_flops(model, config.input_shape) if device.type == "cuda" else None
    ring = nodes = None
    if shard.count > 1:
        timeout = timedelta(seconds=meeting_s(config))
        join(device, ranks=ranks, timeout=timeout)
        ring = connect_ring(ranks, timeout=MEETING_TIMEOUT) if device.type == "cpu" else None
        nodes = find_nodes(ranks, device=device, timeout=timeout) if config.gc_type in TYPES else None
    gc_type = config.gc_type if nodes is not None else "none"
    return make(model, shard=shard, ring=ring, nodes=nodes, method=given, choose=choose, gc_type=gc_type, flops=flops)


class TorchEngine:
    """See trainer.engines.Engine."""

    def __init__(
        self,
        model: nn.Module,
        *,
        device: torch.device,
        shard: Shard,
        ring: Ring | None = None,
        nodes: Nodes | None = None,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
        sync_bn: bool = False,
        method: Method = EXACT,
        choose: Callable[[], Method] | None = None,
        accumulation: int = 1,
        gc_type: str = "none",
        late: bool = False,
        flops: float | None = None,
    ) -> None:
        """``late``: never wait for the device; ``choose``: finds a better method; ``flops``: of a sample, if known."""
        self.phases = Phases()
        self._model = model.to(device)
        self._device = device
        self._shard = shard
        self._ranks = Collective(count=shard.count, ring=ring, nodes=nodes)
        # Its collective operations need a part of every rank in every forward and backward pass.
        self._all_ranks_pass = sync_bn and self._ranks.connected
        self._choose = choose
        self._accumulation = accumulation
        self._late = late
        self._figures = Figures(late=late)
        self._flops = flops
        adapt(self._model, all_reduce=self._ranks.all_reduce if self._all_ranks_pass else None)
        self._statistics = place_statistics(self._model)
        self._parameters = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        weights = flattened([parameter.detach() for parameter in self._parameters])
        # The gradients, and behind them the running statistics of BatchNorm, the loss and what the ranks ask for:
        # one all-reduce sums all.
        self._sums = weights.new_zeros(weights.numel() + self._statistics.numel() + 3)
        sizes = [weights.numel(), self._statistics.numel(), 1, 2]
        self._gradients, self._statistics_sum, self._loss, self._asked = torch.split(self._sums, sizes)
        self._vector = nn.Parameter(weights)
        self._vector.grad = self._gradients
        self._optimizer = Sgd(self._vector, learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay)
        self._momentum = self._optimizer.momenta
        self._momenta = parts(self._momentum, self._parameters, channels_last=False)
        self._reduction = Reduction(self._sums, self._parameters, ranks=self._ranks, gc_type=gc_type)
        self._snapshots = Snapshots(device)
        self._use(method)

    def _use(self, method: Method) -> None:
        """Compute by this method from now on."""
        self._method = method
        momenta = flattened(self._momenta)
        layout = method.channels_last
        place(self._parameters, self._vector.detach(), channels_last=layout)
        place_gradients(self._parameters, self._gradients, channels_last=layout)
        self._momenta = parts(self._momentum, self._parameters, channels_last=layout)
        fill(self._momenta, momenta)
        self._precision = Precision(method.dtype, device=self._device)
        self._run = method.compile(self._model)
        self.peak_speed = find_peak_speed(self._flops, DTYPES[method.dtype], device=self._device)

    def seed(self, number: int) -> None:
        """Begin this rank's random numbers anew."""
        seed_device(number, self._device)

    def reader(self, data: DataSet) -> Reader:
        """Return what reads samples of this data set."""
        if self._device.type != "cuda":
            return partial(prepare, data)
        return device_reader(data, device=self._device, channels_last=self._method.channels_last)

    def compute_gradients(self, images: Images | Placed, labels: Labels, *, asks: Asks = NOTHING) -> BatchResult:
        """Sum the gradients of the loss over the samples of all ranks, and what the ranks ask for."""
        self._sums.zero_()
        correct = self._loss.new_zeros(1)
        if len(labels) or self._all_ranks_pass:
            with report_failed_step(images):
                placed = place_batch(images, labels, self._device, channels_last=self._method.channels_last)
                for number, part in enumerate(split(placed, self._accumulation), start=1):
                    if number == self._accumulation:
                        self._reduction.expect_last()
                    if len(part.targets) or self._all_ranks_pass:
                        correct += self._add_gradients(part)
        if self._ranks.connected:
            # By samples, as the gradients: update() makes means of both.
            torch.mul(self._statistics, len(labels), out=self._statistics_sum)
        if asks != NOTHING:
            self._asked.copy_(torch.tensor([asks.save, asks.stop]))
        self._reduction.finish()
        figures = torch.cat([self._sums[-3:], correct])
        result = self._figures.push(figures, timeout_s=self._ranks.timeout_s)
        self.phases.end(COMMUNICATION)
        return self._seen(result) or NOTHING_YET

    def settle(self) -> BatchResult | None:
        """Return the result that compute_gradients has not returned yet, if there is one."""
        return self._seen(self._figures.settle(timeout_s=self._ranks.timeout_s))

    def set_learning_rate(self, rate: float) -> None:
        """Use it from the next update on."""
        self._optimizer.learning_rate = rate

    def update(self, *, samples: int) -> None:
        """Change the weights by the mean gradient over the ``samples`` of all ranks."""
        self._sums.div_(samples)
        self.await_snapshot()
        self._precision.step(self._optimizer, unseen_loss=self._loss if self._late else None)
        if self._ranks.connected:
            self._statistics.copy_(self._statistics_sum)

    def count_correct(self, images: Images | Placed, labels: Labels) -> int:
        """Return how many of these images the network recognises."""
        if not len(labels):
            return 0
        placed = place_batch(images, labels, self._device, channels_last=self._method.channels_last)
        self._model.eval()
        with torch.inference_mode(), self._precision.autocast():
            found = self._model(placed.images).argmax(dim=1)
        self._model.train()
        return int((found == placed.targets).sum())

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Add up each value over all ranks."""
        if not self._ranks.connected:
            return [float(value) for value in values]
        sums = torch.tensor(values, dtype=torch.float64, device=self._device)
        self._ranks.all_reduce(sums)
        return [float(value) for value in read(sums, timeout_s=self._ranks.timeout_s).tolist()]

    def weights(self) -> Weights:
        """Return a copy of the weights."""
        return {name: value.cpu().numpy().copy() for name, value in self._model.state_dict().items()}

    def state(self) -> State:
        """Return a copy of all that a checkpoint needs."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], State]:
        """Return what copies the state of this moment while the next step computes its gradients."""
        scale = self._precision.scale
        optimizer = {} if scale is None else {SCALE: scale.numpy()}
        if self._choose is not None:
            optimizer[METHOD] = np.array(encode(self._method))
        values = {**self._model.state_dict(keep_vars=True), VECTOR: self._momentum}
        # Each of the names that a buffer has: networks may share their parts.
        buffers = {name for name, _ in self._model.named_buffers(remove_duplicate=False)}
        take = self._snapshots.begin(values, changing=buffers)

        layout = self._method.channels_last
        return lambda: pack(take(), self._parameters, channels_last=layout, more=optimizer)

    def await_snapshot(self) -> None:
        """Return when the last snapshot has been taken, if there was one: what it is of may then change."""
        self._snapshots.wait()

    def restore(self, state: State | None, *, source: int) -> None:
        """Take over the state that the rank ``source`` has, or its new weights; on the others it is None."""
        if self._choose is not None:
            self._agree_on_method(state, source=source)
        if state is not None:
            load_weights(self._model, state)
            fill(self._momenta, torch.from_numpy(state.optimizer[MOMENTUM].copy()).to(self._device))
            if SCALE in state.optimizer:
                self._precision.scale = torch.from_numpy(state.optimizer[SCALE].copy())
        self._send_state("the weights", source=source)

    def expect_pause(self, seconds: float) -> None:
        """Let the other ranks be silent for so long from now on."""
        self._ranks.be_patient(timedelta(seconds=seconds))

    def close(self) -> None:
        """Leave the other ranks."""
        self._ranks.close()

    def _add_gradients(self, batch: Placed) -> torch.Tensor:
        """Add the gradients and the loss of these samples to this rank's; return how many it recognises."""
        with self._precision.autocast():
            scores: torch.Tensor = self._run(batch.images).float()
        loss = cross_entropy(scores, batch.targets, reduction="sum")
        self.phases.end("forward")
        torch.autograd.backward(self._precision.scaled(loss))
        self._loss += loss.detach()
        correct: torch.Tensor = (scores.argmax(dim=1) == batch.targets).sum()
        self.phases.end("backward")
        return correct

    def _seen(self, result: BatchResult | None) -> BatchResult | None:
        if result is not None:
            # torch.compile may take minutes again, for a batch of another size.
            self._ranks.expect_steps(compiled=self._run is not self._model)
        return result

    def _agree_on_method(self, state: State | None, *, source: int) -> None:
        """Use what the rank ``source`` has gone by, or picks now."""
        assert self._choose is not None
        is_source = not self._ranks.connected or self._shard.index == source
        own = (method_of(state) or self._choose()) if is_source else EXACT
        numbers = torch.tensor(encode(own), device=self._device)
        self._ranks.broadcast([numbers], what="how to compute", source=source)
        self._use(decode(numbers.tolist()))

    def _send_state(self, what: str, *, source: int) -> None:
        """Give all ranks the weights, buffers and momentum of one."""
        frozen = [parameter.detach() for parameter in self._model.parameters() if not parameter.requires_grad]
        scales = [] if self._precision.scale is None else [self._precision.scale.to(self._device)]
        tensors = [self._vector.detach(), self._momentum, *frozen, *self._model.buffers(), *scales]
        self._ranks.broadcast(tensors, what=what, source=source)
        for sent in scales:
            self._precision.scale = sent
