"""Train a network: arguments, data, ranks, checkpoints, model, loop, from top to bottom.

Trainer.train_steps() shows one training step. With PyTorch and the default options these files contain all of it:

- train.py: this file
- torch_backend/backend.py: forward, loss, backward
- distributed/reduce/reducers.py: the sum of the gradients, over DistributedDataParallel or a ring of CPUs
- torch_backend/optimizer.py: the update of the weights

Around the step, torch_backend/reducer_setup.py chooses how to sum, data/batches.py prepares the batches, and
torch_backend/deferred_results.py fetches results from a GPU one step late. With MXNet: mxnet_backend/gluon_backend.py.
"""

import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from trainer.backend import NO_FLAGS, Backend, init_framework, set_library_defaults
from trainer.checkpoint import CheckpointManager, CheckpointSaver, finish_saving_on_exit, open_checkpoint_store
from trainer.config.command_line import parse
from trainer.config.settings import TrainConfig
from trainer.data.batches import Augmentation, Batch, LoadBatch, epoch_batches
from trainer.data.check_same_data import check_same_data
from trainer.data.dataset import Dataset
from trainer.data.open_dataset import open_data
from trainer.data.sampling import epoch_length, step_seed
from trainer.distributed.all_gather import all_gather
from trainer.distributed.data_parallel import DataParallelGroup, data_parallel_layout, warn_if_independent
from trainer.distributed.launcher_check import check_launcher, choose_kv_store, is_server
from trainer.errors import StoppedError, TrainerError, UsageError
from trainer.metrics.metric_writers import MetricWriters, open_writers
from trainer.metrics.profiler import Profiler
from trainer.metrics.progress_bar import LogHandler, ProgressBar, make_progress_bar
from trainer.metrics.results import Clock, EpochResult, Speedometer, digest, summarize
from trainer.metrics.step_timer import describe_slowest, format_shares, mean
from trainer.progress import Progress
from trainer.signals import Signals, unblock_signals
from trainer.timeouts import shutdown_timeout_s
from trainer.validation import validate

log = logging.getLogger(__name__)

BEGINNING: Final = Progress()
NO_WRITERS: Final = MetricWriters()
NO_BAR: Final = ProgressBar()
NO_PROFILER: Final = Profiler()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return 0, 1 if training failed, 2 for a wrong option, 128 + N if signal N stopped the run."""
    try:
        set_library_defaults()
        if is_server(os.environ):
            # This is a parameter server: importing mxnet runs the server loop and exits the process when the job ends.
            # Skip the checks below, because the workers report their results.
            unblock_signals()
            importlib.import_module("mxnet")
        config = parse(sys.argv[1:] if arguments is None else arguments)
        check_launcher(config.framework, os.environ)
        config = choose_kv_store(config, os.environ)
        # Log without a rank until run() knows it.
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        signals = Signals()
        run(config, signals)
    except UsageError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return 2
    except StoppedError as stopped:
        number = signals.received or signal.SIGTERM
        log.warning("stopped by %s, %s", number.name if signals.received else "another rank's signal", stopped)
        return 128 + number
    except TrainerError as error:
        log.critical("trainer: %s", error)
        return 1
    return 0


def main_and_exit() -> NoReturn:
    """Run the program and end the process with its exit code."""
    try:
        code = main()
    except Exception:
        # An exception that reaches the interpreter would hang: MXNet's exit handler waits for all other ranks.
        log.critical("trainer: internal error", exc_info=True)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Do not use sys.exit: a gloo thread that is still freeing a tensor during the interpreter's shutdown aborts the
    # process (torch 2.13, one rank in thirty on a busy machine).
    os._exit(code)


def run(config: TrainConfig, signals: Signals) -> None:
    """Train and write the final checkpoint; return on every rank once it is written."""
    # Data. Open it before loading the backend and connecting the ranks, so that a wrong path fails early.
    data = open_data(config)
    config = replace(config, num_classes=config.num_classes or data.num_classes)

    # Rank and world size, from torchrun's variables, MXNet's scheduler or Horovod.
    framework = init_framework(config, os.environ)
    world = framework.world
    bar = make_progress_bar(sys.stderr, rank=world.rank)
    line = f"rank {world} %(message)s"
    logging.basicConfig(level=logging.INFO, format=line, handlers=[LogHandler(sys.stderr, bar)], force=True)
    dp, global_batch_size = data_parallel_layout(config, world)
    learning_rate = config.schedule(global_batch_size=global_batch_size).peak

    # Checkpoints. Load the newest one of this machine or in S3. A restarted job must resume its own first run,
    # whatever --resume says.
    if world.restart_count:
        config = replace(config, resume="auto")
    checkpoint_store = open_checkpoint_store(config, world)
    profiler = Profiler(config.profile_steps, directory=config.profile_dir, rank=world.rank)
    writers = MetricWriters() if world.rank else open_writers(metrics=config.metrics, tensorboard=config.tensorboard)
    checkpoints = CheckpointManager(
        config,
        dp=dp,
        store=checkpoint_store,
        world=world,
        data_versions=data.versions,
        stop_requested=lambda: signals.received is not None,
    )
    checkpoints.load_newest()

    # Model and optimizer.
    backend = framework.create_backend(config, world=world, dp=dp, learning_rate=learning_rate)
    log.info("global batch size %d, peak learning rate %g", global_batch_size, learning_rate)
    check_same_data(backend, data, dp=dp, source=config.dataset)
    if world.rank == 0:
        log.info("dataset %s: %s", config.dataset, data.describe_counts())
    start = checkpoints.resume_or_start(backend)

    # Loop. ``start`` is None when the run had completed before the launcher restarted the job.
    if start is not None:
        trainer = Trainer(
            backend=backend,
            data=data,
            config=config,
            dp=dp,
            global_batch_size=global_batch_size,
            checkpoints=checkpoints,
            writers=writers,
            bar=bar,
            profiler=profiler,
        )
        with signals.graceful_stop(), finish_saving_on_exit(checkpoint_store), writers, bar, profiler:
            results = trainer.train(start)
        # The other ranks wait while rank 0 writes the final checkpoint and uploads it to S3.
        backend.set_timeout(shutdown_timeout_s(config))
        if dp.is_first_of_group:
            path = checkpoints.write_final(backend, validation_accuracy=results[-1].validation_accuracy)
            print(f"rank {world} {summarize(results)} checkpoint={path}", flush=True)
        checkpoints.wait_for_final(backend)
    backend.close()
    checkpoints.finish()
    # Repeat the warning from the start, which has scrolled away.
    warn_if_independent(config, world)


@dataclass(kw_only=True, slots=True)
class Trainer:
    """The training loop of one model."""

    backend: Backend
    data: Dataset
    config: TrainConfig
    dp: DataParallelGroup
    global_batch_size: int
    checkpoints: CheckpointSaver
    writers: MetricWriters = NO_WRITERS
    bar: ProgressBar = NO_BAR
    profiler: Profiler = NO_PROFILER
    clock: Clock = time.perf_counter
    load_batch: LoadBatch = field(init=False)

    def __post_init__(self) -> None:
        self.load_batch = self.backend.make_batch_loader(self.data)

    def train(self, start: Progress = BEGINNING) -> list[EpochResult]:
        """Train from ``start`` to the last epoch; return each epoch's result. Raises StoppedError after a signal."""
        results, progress = [], start
        for epoch in range(start.epoch, self.config.num_epochs):
            result = self.train_epoch(progress)
            results.append(result)
            if self.dp.is_first_of_group:
                log.info("Epoch[%d] %s", epoch, result)
                log.info("Epoch[%d] time per phase: %s", epoch, format_shares(result.phases))
                if result.slowest is not None:
                    log.warning("Epoch[%d] %s", epoch, result.slowest)
                self.writers.write(result.metrics, epoch=epoch, samples=(epoch + 1) * self.samples_per_epoch())
            log.info("Epoch[%d] weights=%s", epoch, digest(self.backend.weights()))
            progress = Progress(run_started_at=start.run_started_at, epoch=epoch + 1)
            if progress.epoch < self.config.num_epochs:
                self.checkpoints.save(self.backend, progress, validation_accuracy=result.validation_accuracy)
        return results

    def train_epoch(self, progress: Progress) -> EpochResult:
        """Train from ``progress`` to the end of its epoch, and validate."""
        backend, dp = self.backend, self.dp
        started = self.clock()
        end = self.samples_per_epoch(resumed_at=progress.samples)
        samples_trained = end - progress.samples
        progress, local_correct = self.train_steps(progress, end=end)
        seconds = self.clock() - started

        # Gather before validation: with dist_async, all ranks finish the epoch here and load equal weights.
        phases = all_gather(backend, backend.timer.read_and_reset(), dp=dp)
        local_val_correct = validate(
            backend, self.load_batch, self.data.validation, dp=dp, global_batch_size=self.global_batch_size
        )
        train_correct, val_correct = backend.all_reduce([local_correct, local_val_correct])
        peak = backend.peak_samples_per_s
        return EpochResult(
            samples=samples_trained,
            loss=progress.loss_sum / end,
            train_accuracy=train_correct / end,
            validation_accuracy=val_correct / len(self.data.validation.labels),
            seconds=seconds,
            mfu=None if peak is None else samples_trained / seconds / (self.dp.world_size * peak),
            phases=mean(phases),
            slowest=describe_slowest(phases),
        )

    def train_steps(self, progress: Progress, *, end: int) -> tuple[Progress, int]:
        """Train an epoch up to its sample ``end``; return the progress and this rank's correct predictions."""
        backend, config, epoch, timer = self.backend, self.config, progress.epoch, self.backend.timer
        schedule = config.schedule(global_batch_size=self.global_batch_size)
        speedometer = Speedometer(every=config.disp_batches, clock=self.clock)
        # The checkpoint contains the sum over all ranks, so add it on only one rank.
        local_correct = progress.correct if self.dp.is_first_of_group else 0
        timer.read_and_reset()
        timer.start()
        with closing(self.batches(progress, end=end)) as batches:
            for step, num_samples, images, labels in batches:
                timer.end("data")
                self.profiler.begin_step()
                # Derive the seed from the step's position, so that a resumed run draws the same random numbers.
                backend.seed(step_seed(config.seed, epoch=epoch, position=progress.samples, dp=self.dp))

                # Forward, backward, and all-reduce of the gradients.
                result = backend.forward_backward(images, labels, flags=self.checkpoints.flags())
                progress = replace(progress, samples=progress.samples + num_samples)
                progress = progress.add_loss(result.loss_sum, batch=step - result.delay_steps)

                # Update the weights.
                backend.set_learning_rate(schedule.lr(epoch=epoch, epoch_fraction=progress.samples / end))
                backend.optimizer_step(num_samples=num_samples)
                timer.end("optimizer")

                # Results. A GPU returns them one step late: wait for this step's only if they are used below.
                are_used = speedometer.is_due or result.flags != NO_FLAGS or progress.samples == end
                if are_used and (deferred := backend.take_deferred()):
                    progress = progress.add_loss(deferred.loss_sum, batch=step)
                    result = result.followed_by(deferred)
                local_correct += result.correct

                # Report.
                self.bar.show(progress, total=end)
                if pace := speedometer.add(samples=len(labels), correct=result.correct):
                    log.info("Epoch[%d] Batch [%d] %s", epoch, step, pace)
                    metrics = {"train/loss": result.loss_sum / num_samples, **pace.metrics}
                    samples = epoch * self.samples_per_epoch() + progress.samples
                    self.writers.write(metrics, epoch=epoch, samples=samples)

                # Save a checkpoint, and stop if a rank received a signal. All ranks see the same flags.
                if result.flags != NO_FLAGS:
                    [global_correct] = backend.all_reduce([local_correct])
                    self.checkpoints.save(backend, replace(progress, correct=int(global_correct)))
                if result.flags.stop:
                    raise StoppedError("with a checkpoint")
                timer.start()
        return progress, local_correct

    def batches(self, progress: Progress, *, end: int) -> Generator[Batch, None, None]:
        """Yield this rank's batches from ``progress`` to the sample ``end``."""
        return epoch_batches(
            self.data.train,
            self.load_batch,
            augmentation=Augmentation.from_config(self.config),
            dp=self.dp,
            global_batch_size=self.global_batch_size,
            seed=self.config.seed,
            epoch=progress.epoch,
            begin=progress.samples,
            end=end,
        )

    def samples_per_epoch(self, *, resumed_at: int = 0) -> int:
        """Return the sample index at which an epoch ends; below the dataset's size if the last batch is dropped."""
        size, drop_last = len(self.data.train.labels), self.config.last_batch == "drop"
        return epoch_length(size, global_batch_size=self.global_batch_size, begin=resumed_at, drop_last=drop_last)
