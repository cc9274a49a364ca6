"""Compute one training step in PyTorch: forward, backward, reduce, update. For MXNet: mxnet_backend/gluon_backend.py.

One process per device. Between GPUs DistributedDataParallel sums the gradients over NCCL during the backward pass, and
between CPUs a ring of TCP connections sums them after it, as part of a flat tensor (distributed/reduce/reducers.py).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from trainer.backend import NO_FLAGS, NO_RESULT_YET, StepFlags, StepResult, TrainingState, Weights
from trainer.cuda_streams import copy_to_host
from trainer.data import Images, Labels
from trainer.data.batches import LoadBatch, load_and_transform
from trainer.data.dataset import Dataset
from trainer.distributed.batch_norm import adapt_batch_norms, flatten_statistics
from trainer.distributed.broadcast import broadcast, broadcast_object
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.reduce.reducers import Communicator, DdpReducer, FlatReducer
from trainer.metrics.flops import find_peak_samples_per_s
from trainer.metrics.step_timer import StepTimer
from trainer.torch_backend.compute_mode import DEFAULT_MODE, DTYPES, MODE_KEY, ComputeMode, decode, encode, read_mode
from trainer.torch_backend.deferred_results import DeferredResults
from trainer.torch_backend.device import seed_device
from trainer.torch_backend.device_loader import (
    DeviceBatch,
    MicroBatches,
    device_loader,
    load_micro_batches,
    split,
    to_device,
)
from trainer.torch_backend.flat_params import FlatParams
from trainer.torch_backend.optimizer import SGD, Precision
from trainer.torch_backend.reducer_setup import make_ddp_reduction, make_flat_reduction
from trainer.torch_backend.saved_state import MOMENTUM, MOMENTUM_COPY_KEY, SCALE, Snapshots, load_weights, pack_state
from trainer.torch_backend.step_errors import report_failed_step


@dataclass(frozen=True, kw_only=True, slots=True)
class StepSettings:
    """Settings of a step; see trainer.config.settings.TrainConfig."""

    learning_rate: float
    momentum: float
    weight_decay: float
    decay_all: bool = False
    sync_bn: bool = False
    accumulation: int = 1
    label_smoothing: float = 0.0
    ddp: bool = False
    compression: str = "none"
    is_deferred: bool = False
    """True if a step's results arrive one step late."""


class StepSums(NamedTuple):
    """Views into the flat tensor that a step all-reduces. Weights and momentum use the same parameter order:

    weights          | no weight decay | weight decay |   (in `FlatParams`)
    momentum buffers | no weight decay | weight decay |   (in the optimizer)
    sums (this)      | no weight decay | weight decay | BatchNorm statistics | loss | save | stop |
                       `------- gradients ----------'   (with DistributedDataParallel: empty, it owns the gradients)
    """

    gradients: torch.Tensor
    statistics: torch.Tensor
    """Running means and variances, multiplied by this rank's number of samples."""
    loss: torch.Tensor
    flags: torch.Tensor
    """Number of ranks that ask to save, and to stop."""


class TorchBackend:
    """A network and its optimizer on this rank's device. trainer.backend.Backend documents the public methods."""

    def __init__(
        self,
        model: nn.Module,
        settings: StepSettings,
        *,
        device: torch.device,
        dp: DataParallelGroup,
        communicator: Communicator | None = None,
        mode: ComputeMode = DEFAULT_MODE,
        autotune: Callable[[], ComputeMode] | None = None,
        flops_per_sample: float | None = None,
    ) -> None:
        """Move the model to the device.

        With ``autotune``, restore() creates the reducer and the optimizer, because a checkpoint may set the mode.
        """
        self.timer = StepTimer()
        self._settings = settings
        self._model = model.to(device)
        self._device = device
        self._communicator = communicator or Communicator(world_size=dp.world_size)
        # SyncBatchNorm communicates in every forward and backward pass, so a rank without samples must run them too.
        self._sync_bn = settings.sync_bn and self._communicator.is_distributed
        self._autotune = autotune
        self._results = DeferredResults(is_deferred=settings.is_deferred)
        self._flops_per_sample = flops_per_sample
        adapt_batch_norms(self._model, all_reduce=self._communicator.all_reduce if self._sync_bn else None)
        self._statistics = flatten_statistics(self._model)
        self._flat = FlatParams(self._model, decay_all=settings.decay_all)
        self._ddp = settings.ddp and self._communicator.is_distributed
        sizes = [0 if self._ddp else self._flat.weights.numel(), self._statistics.numel(), 1, 2]
        self._flat_sums = self._flat.weights.new_zeros(sum(sizes))
        self._sums = StepSums(*torch.split(self._flat_sums, sizes))
        self._snapshots = Snapshots(device)
        self._mode = mode
        if autotune is None:
            self._apply_mode(mode)

    def _apply_mode(self, mode: ComputeMode) -> None:
        """Compute in this mode from now on: lay out the weights, choose the reducer, create the optimizer."""
        self._mode = mode
        settings, device = self._settings, self._device
        self._flat.bind(channels_last=mode.channels_last)
        parts = (mode.compile(self._model), self._flat, self._flat_sums)
        if self._ddp:
            reduction = make_ddp_reduction(*parts, communicator=self._communicator, weight_decay=settings.weight_decay)
        else:
            reduction = make_flat_reduction(
                *parts,
                communicator=self._communicator,
                weight_decay=settings.weight_decay,
                mode=mode,
                compression=settings.compression,
            )
        self._reducer: DdpReducer | FlatReducer = reduction.reducer
        self._optimizer = SGD(reduction.param_groups, learning_rate=settings.learning_rate, momentum=settings.momentum)
        self._precision = Precision(mode.dtype, device=device)
        self._forward = reduction.module
        self.peak_samples_per_s = find_peak_samples_per_s(self._flops_per_sample, DTYPES[mode.dtype], device=device)

    def forward_backward(
        self, images: Images | DeviceBatch | MicroBatches, labels: Labels, *, flags: StepFlags = NO_FLAGS
    ) -> StepResult:
        self._reducer.begin()
        correct = self._sums.loss.new_zeros(1)

        # Forward and backward, one micro-batch at a time. Between GPUs the last backward pass sends the accumulated
        # gradients.
        with report_failed_step(images, timeout_s=self._communicator.timeout_s):
            for number, batch in enumerate(self._micro_batches(images, labels), start=1):
                is_last = number == self._settings.accumulation
                with self._reducer.backward_pass(is_last=is_last):
                    if len(batch.targets) or self._sync_bn:
                        correct += self._accumulate_gradients(batch)
                    elif is_last:
                        with self._precision.autocast():
                            self._reducer.shadow_backward(batch.images)

        # Reduce what the backward pass has not reduced.
        if self._communicator.is_distributed:
            # Weight by samples, like the gradients: optimizer_step() divides both by the samples of all ranks.
            torch.mul(self._statistics, len(labels), out=self._sums.statistics)
        if flags != NO_FLAGS:
            self._sums.flags.copy_(torch.tensor([flags.save, flags.stop]))
        self._reducer.finish()
        # The phase also times these two small operations; on a GPU they only enter its queue.
        step_results = torch.cat([self._sums.loss, self._sums.flags, correct])
        result = self._results.push(step_results, timeout_s=self._communicator.timeout_s)
        self.timer.end("communication")
        if result is None:
            return NO_RESULT_YET
        # All ranks have made a step: end the start's long timeout; torch.compile may still take minutes for a new size.
        self._communicator.use_step_timeout(compiled=self._mode.is_compiled)
        return result

    def _micro_batches(self, images: Images | DeviceBatch | MicroBatches, labels: Labels) -> Iterator[DeviceBatch]:
        """Yield the batch on the device in --gradient-accumulation parts."""
        move_to_device = partial(to_device, device=self._device, channels_last=self._mode.channels_last)
        if isinstance(images, MicroBatches):
            return (move_to_device(*batch) for batch in images)
        return split(move_to_device(images, labels), self._settings.accumulation)

    def _accumulate_gradients(self, batch: DeviceBatch) -> torch.Tensor:
        """Add the batch's gradients and loss to this rank's sums; return the number of correct predictions."""
        with self._precision.autocast():
            logits: torch.Tensor = self._forward(batch.images).float()
        loss = cross_entropy(logits, batch.targets, reduction="sum", label_smoothing=self._settings.label_smoothing)
        self.timer.end("forward")
        torch.autograd.backward(self._precision.scaled(loss))
        self._sums.loss.add_(loss.detach())
        correct: torch.Tensor = (logits.argmax(dim=1) == batch.targets).sum()
        self.timer.end("backward")
        return correct

    def optimizer_step(self, *, num_samples: int) -> None:
        self._reducer.average(num_samples=num_samples)
        self.wait_for_snapshot()
        self._precision.step(self._optimizer, deferred_loss=self._sums.loss if self._settings.is_deferred else None)
        if self._communicator.is_distributed:
            self._statistics.copy_(self._sums.statistics)

    def take_deferred(self) -> StepResult | None:
        result = self._results.take(timeout_s=self._communicator.timeout_s)
        if result is not None:
            self._communicator.use_step_timeout(compiled=self._mode.is_compiled)
        return result

    def seed(self, number: int) -> None:
        seed_device(number, self._device)

    def make_batch_loader(self, data: Dataset) -> LoadBatch:
        load_batch: LoadBatch = partial(load_and_transform, data)
        if self._device.type == "cuda":
            load_batch = device_loader(data, device=self._device, channels_last=self._mode.channels_last)
        accumulation = self._settings.accumulation
        return load_batch if accumulation == 1 else partial(load_micro_batches, load_batch, accumulation)

    def set_learning_rate(self, rate: float) -> None:
        self._optimizer.learning_rate = rate

    def count_correct(self, images: Images | DeviceBatch | MicroBatches, labels: Labels) -> int:
        if isinstance(images, MicroBatches):
            return sum(self.count_correct(*batch) for batch in images)
        if not len(labels):
            return 0
        batch = to_device(images, labels, self._device, channels_last=self._mode.channels_last)
        self._model.eval()
        with torch.inference_mode(), self._precision.autocast():
            predictions = self._model(batch.images).argmax(dim=1)
        self._model.train()
        return int((predictions == batch.targets).sum())

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        if not self._communicator.is_distributed:
            return [float(value) for value in values]
        sums = torch.tensor(values, dtype=torch.float64, device=self._device)
        self._communicator.all_reduce(sums)
        return [float(value) for value in copy_to_host(sums, timeout_s=self._communicator.timeout_s).tolist()]

    def broadcast_object(self, value: Any, *, source: int) -> Any:
        return broadcast_object(value, source=source, device=self._device, communicator=self._communicator)

    def weights(self) -> Weights:
        return {name: value.cpu().numpy().copy() for name, value in self._model.state_dict().items()}

    def state(self) -> TrainingState:
        copy_state = self.snapshot()
        return copy_state()

    def snapshot(self) -> Callable[[], TrainingState]:
        scale = self._precision.scale
        optimizer = {} if scale is None else {SCALE: scale.numpy()}
        if self._autotune is not None:
            optimizer[MODE_KEY] = np.array(encode(self._mode))
        values = {**self._model.state_dict(keep_vars=True), MOMENTUM_COPY_KEY: self._flat.momentum_buffers}
        # Networks may share modules: list a buffer under each of its names.
        buffers = {name for name, _ in self._model.named_buffers(remove_duplicate=False)}
        take = self._snapshots.begin(values, changing=buffers)
        order, layout = self._flat.network_order, self._mode.channels_last
        pack = partial(pack_state, network_order=order, channels_last=layout, optimizer=optimizer)
        return lambda: pack(take(), self._flat.parameters)

    def wait_for_snapshot(self) -> None:
        """Wait until the last snapshot, if any, has been copied, because the next update changes its values."""
        self._snapshots.wait()

    def restore(self, state: TrainingState | None, *, source: int) -> None:
        if self._autotune is not None:
            self._agree_on_mode(self._autotune, state, source=source)
        if state is not None:
            load_weights(self._model, state)
            self._flat.load_momentum_buffers(torch.from_numpy(state.optimizer[MOMENTUM].copy()).to(self._device))
            if SCALE in state.optimizer:
                self._precision.scale = torch.from_numpy(state.optimizer[SCALE].copy())
        frozen = [parameter.detach() for parameter in self._model.parameters() if not parameter.requires_grad]
        scales = [] if self._precision.scale is None else [self._precision.scale.to(self._device)]
        tensors = [self._flat.weights, self._flat.momentum_buffers, *frozen, *self._model.buffers(), *scales]
        broadcast(tensors, what="the weights", source=source, communicator=self._communicator)
        for sent in scales:
            self._precision.scale = sent

    def _agree_on_mode(self, autotune: Callable[[], ComputeMode], state: TrainingState | None, *, source: int) -> None:
        """Use the mode in the checkpoint of the rank ``source``, or let all ranks measure one."""
        mode = read_mode(state)
        stored = self.broadcast_object(None if mode is None else encode(mode), source=source)
        self._apply_mode(autotune() if stored is None else decode(stored))

    def set_timeout(self, seconds: float) -> None:
        self._communicator.set_timeout(timedelta(seconds=seconds))

    def close(self) -> None:
        # Drop the last references to DistributedDataParallel.
        self._reducer = self._forward = None  # type: ignore[assignment]  # no step follows
        self._communicator.close()
