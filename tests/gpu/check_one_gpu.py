"""Check the trainer on one GPU: it computes what a CPU computes, never waits, and reports errors in one line.

These are tests of unittest, because the machine may have no pytest.
"""

import re
import signal
import tempfile
import unittest
from pathlib import Path
from threading import Thread
from unittest.mock import patch

import numpy as np
import torch

from tests.trainer.distributed.weights import distance
from tests.trainer.programs.processes import REPOSITORY, Rank, run, running
from trainer.backend import Weights
from trainer.config.settings import TrainConfig
from trainer.cuda_streams import record_event
from trainer.data.batches import Augmentation, load_and_transform
from trainer.data.synthetic import make_synthetic
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.world import World
from trainer.metrics.results import digest
from trainer.models import build
from trainer.torch_backend.backend import StepSettings, TorchBackend
from trainer.torch_backend.compute_mode import DEFAULT_MODE, ComputeMode
from trainer.torch_backend.create_backend import create_backend
from trainer.torch_backend.device_loader import DeviceLoader

GPU, CPU = torch.device("cuda:0"), torch.device("cpu")
SHAPE = (3, 32, 32)
DATA = make_synthetic(SHAPE, samples=64)
IMAGES, LABELS = load_and_transform(DATA, DATA.train, np.arange(64))
HALF = "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
OWN = {"PYTHONPATH": str(REPOSITORY)}
"""Variables that run ranks in separate processes: CUDA does not survive a fork; see tests.trainer.programs.forked."""
LONG_CYCLES = 2_000_000_000
"""Number of GPU clock cycles that take about a second."""
DIGITS = ("--num-epochs", "12", "--model-prefix", "net")


def backend(device: torch.device, *, mode: ComputeMode = DEFAULT_MODE, network: str = "resnet20") -> TorchBackend:
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = False
    model = build(network, num_classes=10, image_shape=SHAPE)
    settings = StepSettings(learning_rate=0.05, momentum=0.9, weight_decay=0.0001, is_deferred=device == GPU)
    return TorchBackend(model, settings, device=device, dp=DataParallelGroup(), mode=mode)


def learned(ours: TorchBackend, steps: int = 3) -> Weights:
    for _ in range(steps):
        ours.forward_backward(IMAGES, LABELS)
        ours.optimizer_step(num_samples=len(LABELS))
    return ours.weights()


class OneGpu(unittest.TestCase):
    """Checks in this process."""

    def test_float32_learns_what_a_cpu_learns(self) -> None:
        assert distance(learned(backend(GPU)), learned(backend(CPU))) < 0.0001

    def test_every_method_learns_nearly_the_same(self) -> None:
        exact = learned(backend(GPU))
        for mode, tolerance in (
            (ComputeMode(channels_last=True), 1e-4),
            (ComputeMode(dtype=HALF, channels_last=True), 3e-2),
            (ComputeMode(dtype="float16"), 3e-2),
            (ComputeMode(compile_mode="1"), 1e-4),
            (ComputeMode(compile_mode="graphs"), 1e-4),
            (ComputeMode(dtype=HALF, channels_last=True, compile_mode="1"), 3e-2),
            (ComputeMode(dtype=HALF, channels_last=True, compile_mode="graphs"), 3e-2),
        ):
            with self.subTest(str(mode)):
                assert distance(learned(backend(GPU, mode=mode)), exact) < tolerance

    def test_step_never_waits_for_the_gpu(self) -> None:
        for mode in (DEFAULT_MODE, ComputeMode(dtype=HALF, channels_last=True), ComputeMode(dtype="float16")):
            ours = backend(GPU, mode=mode)
            read = ours.make_batch_loader(DATA)
            placed, labels = read(DATA.train, np.arange(64))
            for _ in range(3):
                ours.forward_backward(placed, labels)
                ours.optimizer_step(num_samples=64)
            torch.cuda.synchronize()
            with self.subTest(str(mode)):
                torch.cuda.set_sync_debug_mode("error")
                try:
                    for _ in range(3):
                        ours.forward_backward(placed, labels)
                        ours.optimizer_step(num_samples=64)
                finally:
                    torch.cuda.set_sync_debug_mode("default")

    def test_results_come_a_step_later_and_are_those_of_a_cpu(self) -> None:
        ours, other = backend(GPU), backend(CPU)
        assert ours.forward_backward(IMAGES, LABELS).loss_sum == 0
        late, result = ours.take_deferred(), other.forward_backward(IMAGES, LABELS)
        assert late is not None
        assert abs(late.loss_sum / result.loss_sum - 1) < 1e-4
        assert abs(late.correct - result.correct) <= 2

    def test_loss_that_is_not_finite_changes_no_weights(self) -> None:
        for mode in (DEFAULT_MODE, ComputeMode(dtype="float16")):
            ours = backend(GPU, mode=mode, network="lenet")
            learned(ours)
            before = digest(ours.weights())
            ours.forward_backward(np.full_like(IMAGES, np.nan), LABELS)
            ours.optimizer_step(num_samples=len(LABELS))
            assert digest(ours.weights()) == before
            result = ours.forward_backward(IMAGES, LABELS)
            assert np.isnan(result.loss_sum)
            assert result.delay_steps == 1

    def test_checkpoint_is_copied_beside_the_step_that_follows(self) -> None:
        ours = backend(GPU)
        learned(ours)
        before = ours.state()
        take = ours.snapshot()
        torch.cuda._sleep(LONG_CYCLES)  # type: ignore[no-untyped-call]  # torch gives it no types
        step = record_event(GPU)
        assert step is not None
        state = take()
        assert not step.query()  # type: ignore[no-untyped-call]  # torch gives it no types
        ours.forward_backward(IMAGES, LABELS)
        take = ours.snapshot()
        Thread(target=ours.optimizer_step, kwargs={"num_samples": len(LABELS)}, daemon=True).start()
        changed = take()
        assert digest(state.weights) == digest(before.weights)
        assert digest(state.optimizer) == digest(before.optimizer) == digest(changed.optimizer)

    def test_state_restored_on_another_device_is_equal(self) -> None:
        mode = ComputeMode(dtype="float16", channels_last=True)
        first, second = backend(GPU, mode=mode), backend(CPU)
        learned(first)
        second.restore(first.state(), source=0)
        assert digest(first.weights()) == digest(second.weights())

    def test_batches_have_the_bits_of_the_cpus(self) -> None:
        params = Augmentation(random_crop=True, random_mirror=True).draw(epoch=1, samples=64)
        indices = np.array([5, 1, 63, 5])
        for memory in (0, 2**30):
            for wanted in (params, None):
                loader = DeviceLoader(DATA, device=GPU, channels_last=True, memory=memory)
                placed, labels = loader(DATA.train, indices, wanted)
                images, same = load_and_transform(DATA, DATA.train, indices, wanted)
                np.testing.assert_array_equal(placed.images.cpu().numpy(), images)
                np.testing.assert_array_equal(placed.targets.cpu().numpy(), same)
                np.testing.assert_array_equal(labels, same)

    def test_data_on_the_gpu_and_data_sent_per_batch_are_equal(self) -> None:
        with patch("trainer.torch_backend.device_loader.RESIDENT_SHARE", 0.0):
            travelling = backend(GPU).make_batch_loader(DATA)
        staying = backend(GPU).make_batch_loader(DATA)
        for part in (np.arange(16), np.arange(16, 64)):
            one, other = (read(DATA.train, part)[0] for read in (travelling, staying))
            assert torch.equal(one.images, other.images)

    def test_fast_measures_and_picks(self) -> None:
        config = TrainConfig(fast="auto", network="resnet20", dataset="synthetic", image_shape=SHAPE)
        ours = create_backend(config, world=World(), dp=DataParallelGroup(), learning_rate=0.1)
        with self.assertLogs("trainer.torch_backend.autotune", "INFO") as printed:
            ours.restore(None, source=0)
        assert re.search(r"picked \S+.*, a step took: float32 [\d.]+ ms; ", "\n".join(printed.output))


class CommandLine(unittest.TestCase):
    """Checks of the program as its users start it."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def test_digits_are_learned_in_half_precision(self) -> None:
        [rank] = run(*DIGITS, "--dtype", HALF, "--gradient-accumulation", "2", directory=self.directory, variables=OWN)
        assert "device=cuda:0" in rank.log.read_text()
        found = re.search(r"Validation-accuracy=([\d.]+)", rank.out.read_text())
        assert found is not None
        assert float(found[1]) >= 0.98

    def test_interrupted_training_ends_with_the_same_bits(self) -> None:
        for dtype in ("float32", "float16"):
            options = (*DIGITS, "--disp-batches", "1", "--num-epochs", "4", "--dtype", dtype, "--deterministic")
            place, undisturbed = self.directory / dtype, self.directory / f"whole-{dtype}"
            place.mkdir()
            undisturbed.mkdir()
            [whole] = run(*options, directory=undisturbed, variables=OWN)
            with running(*options, directory=place, variables=OWN) as [interrupted]:
                interrupted.wait_for_log("Epoch[1] Batch [7]")
                interrupted.process.send_signal(signal.SIGTERM)
                assert interrupted.wait() == 128 + signal.SIGTERM
            [resumed] = run(*options, directory=place, variables=OWN)
            assert "resuming at epoch 1" in resumed.log.read_text()
            assert resumed.digests[-1] == whole.digests[-1]

    def test_deterministic_networks_of_ours_have_every_operation_they_need(self) -> None:
        for network, shape in (("lenet", "1,28,28"), ("resnext110", "3,32,32"), ("resnet50", "3,64,64")):
            size = ("--network", network, "--image-shape", shape, "--num-examples", "32", "--num-epochs", "1")
            place = self.directory / network
            place.mkdir()
            [rank] = run("--benchmark", "1", *size, "--deterministic", directory=place, variables=OWN)
            assert rank.digests

    def test_full_gpu_is_one_line(self) -> None:
        options = ("--network", "resnet50", "--benchmark", "1", "--num-examples", "8192", "--batch-size", "8192")
        with running(*options, directory=self.directory, variables=OWN) as [rank]:
            assert rank.wait() == 1
        self.assert_one_line(rank, "the GPU's memory is too small for 8192 samples")

    def test_gpu_that_is_not_there_is_one_line(self) -> None:
        with running("--gpus", "99", directory=self.directory, variables=OWN) as [rank]:
            assert rank.wait() == 2
        self.assert_one_line(rank, "no GPU 99 on this machine")

    def assert_one_line(self, rank: Rank, text: str) -> None:
        printed = rank.log.read_text()
        assert text in printed.splitlines()[-1]
        assert "Traceback" not in printed
