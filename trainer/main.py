"""One training run from the command line to the checkpoint."""

import importlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from trainer.agreement import check_agreement
from trainer.bar import Bar, Lines, bar_for
from trainer.checkpoint import prepare
from trainer.checkpoints import Checkpoints
from trainer.claim import claim, training_of
from trainer.config import TrainConfig
from trainer.data.opening import open_data
from trainer.data.samples import DataSet
from trainer.directories import is_elsewhere
from trainer.engines import Connection, load
from trainer.engines.patience import end_s
from trainer.errors import StoppedError, TrainerError, UsageError
from trainer.keeper import Keeper
from trainer.launched import check_engine, serves
from trainer.loop import train
from trainer.metrics import EpochResult
from trainer.mirror import Mirror
from trainer.options import parse
from trainer.profiling import Profiling
from trainer.ranks import Ranks
from trainer.records import Records, open_records
from trainer.s3 import S3Folder
from trainer.sampling import Shard
from trainer.sharing import is_rank_0s
from trainer.signals import Signals, let_go

log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return 0, 1 when the training failed, 2 when it was called wrongly, 143 after SIGTERM."""
    try:
        prepare_engines()
        if serves(os.environ):
            # Before anything can be found wrong, which the workers say. In these roles it serves, and ends the process.
            let_go()
            importlib.import_module("mxnet")
        config = parse(sys.argv[1:] if arguments is None else arguments)
        check_engine(config.engine, os.environ)
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        signals = Signals()
        # Before the engine is loaded and the others are met: nobody should wait for what can never be.
        data = open_data(config)
        config = replace(config, num_classes=config.num_classes or data.classes)
        connection = load(config.engine)(config, os.environ)
        bar = bar_for(sys.stderr, rank=connection.ranks.rank)
        form = f"rank {connection.ranks} %(message)s"
        logging.basicConfig(level=logging.INFO, format=form, handlers=[Lines(sys.stderr, bar)], force=True)
        run(config, data, connection, signals, bar)
    except UsageError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return 2
    except StoppedError as kept:
        number = signals.received or signal.SIGTERM
        log.warning("stopped by %s, %s", number.name if signals.received else "another rank's signal", kept)
        return 128 + number
    except TrainerError as error:
        log.critical("trainer: %s", error)
        return 1
    return 0


def main_and_leave() -> NoReturn:
    """Run the program and end the process with its code."""
    try:
        code = main()
    except Exception:
        # Nor is an error of ours left to the interpreter: on its way out, MXNet waits for all other ranks.
        log.critical("trainer: an error of the trainer's own", exc_info=True)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: a thread of gloo may be letting go of its last tensor while the interpreter takes
    # itself apart, which aborts the process (torch 2.13, one rank in thirty on a busy machine).
    os._exit(code)


def prepare_engines() -> None:
    """Set what an engine's libraries read when they are loaded."""
    # By default OpenMP's threads spin while they wait for each other, which on cores shared with
    # another process cost LeNet nine tenths of its speed.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Torch warns of every host name that has no IPv6 address, as those in /etc/hosts.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def run(config: TrainConfig, data: DataSet, connection: Connection, signals: Signals, bar: Bar) -> None:
    """Train, and leave a checkpoint; no rank returns before it is written."""
    ranks = connection.ranks
    shard, global_batch_size = divide_work(config, ranks)
    learning_rate = config.schedule(global_batch_size=global_batch_size).peak
    if ranks.restarts:
        # Begun anew in the job's first attempt; the later ones are there to go on from what that one kept.
        config = replace(config, resume="auto")
    keeper = keeper_of(config, ranks)
    profiling = Profiling(config.profile_steps, directory=config.profile_dir, rank=ranks.rank)
    records = Records() if ranks.rank else open_records(metrics=config.metrics, tensorboard=config.tensorboard)
    checkpoints = Checkpoints(
        config, shard=shard, keeper=keeper, ranks=ranks, told_to_stop=lambda: signals.received is not None
    )
    engine = connection.create(config, ranks=ranks, shard=shard, learning_rate=learning_rate)
    log.info("global batch size %d, learning rate %g", global_batch_size, learning_rate)
    check_agreement(engine, data, shard=shard, source=config.dataset)
    if ranks.rank == 0:
        log.info("data set %s: %s", config.dataset, data.counts)
    elsewhere = is_elsewhere(engine, keeper.prefix if keeper else None, shard=shard)
    shared = is_rank_0s(engine, keeper.prefix if keeper else None, shard=shard)
    begin = checkpoints.begin(engine, elsewhere=elsewhere, shared=shared)
    if begin is not None:
        with signals.deferred(), waiting_for(keeper), records, bar, profiling:
            results = train(
                engine,
                data,
                config=config,
                shard=shard,
                global_batch_size=global_batch_size,
                keeping=checkpoints,
                records=records,
                bar=bar,
                profiling=profiling,
                begin=begin,
            )
        # What rank 0 has to write and to copy may take long.
        engine.expect_pause(end_s(config))
        if shard.index == 0:
            place = checkpoints.end(engine, validation_accuracy=results[-1].validation_accuracy)
            print(f"rank {ranks} {summarize(results)} checkpoint={place}", flush=True)
        checkpoints.agree_on_end(engine)
    engine.close()
    checkpoints.finish()
    # Again: by now the line at the start is far above.
    warn_if_apart(config, ranks)


def keeper_of(config: TrainConfig, ranks: Ranks) -> Keeper | None:
    """Who writes this rank's checkpoints: one process a machine when all train one model, or else each its own."""
    if ranks.local_rank and config.distributed:
        return None
    prefix = config.checkpoint_prefix
    prepare(Path(prefix).expanduser().parent)
    if not config.distributed and ranks.world_size > 1:
        prefix = f"{prefix}-rank{ranks.rank}"
    # Held until the process ends.
    claim(prefix, training=training_of(ranks.job, os.environ))
    mirror = None
    # One copy for all machines: they keep the same.
    if config.s3_folder is not None and (ranks.rank == 0 or not config.distributed):
        mirror = Mirror(S3Folder(config.s3_folder), every_s=config.checkpoint_seconds)
    return Keeper(prefix, mirror=mirror)


@contextmanager
def waiting_for(keeper: Keeper | None) -> Iterator[None]:
    """Leave the block only when the last checkpoint is written, and copied if it will be needed."""
    try:
        yield
    except BaseException:
        if keeper is not None:
            keeper.leave()
        raise
    if keeper is not None:
        keeper.wait()


def divide_work(config: TrainConfig, ranks: Ranks) -> tuple[Shard, int]:
    """Return this rank's part of every step, and the number of samples in a step of all parts."""
    if not config.distributed:
        warn_if_apart(config, ranks)
        return Shard(), config.samples_per_step
    if config.batch_size_per_machine < ranks.local_world_size:
        raise UsageError(
            f"--batch-size must be at least {ranks.local_world_size}, one sample for each process "
            f"of a machine, got {config.batch_size_per_machine}"
        )
    return Shard(index=ranks.rank, count=ranks.world_size), config.samples_per_step * ranks.machines


def warn_if_apart(config: TrainConfig, ranks: Ranks) -> None:
    """Say so when processes that were started together do not train one network."""
    if ranks.world_size > 1 and not config.distributed:
        log.warning(
            "--kv-store %s does not communicate, %d processes train apart from each other, "
            "for one training use --kv-store dist_sync",
            config.store,
            ranks.world_size,
        )


def summarize(results: Sequence[EpochResult]) -> str:
    """Return the figures that a training is judged by."""
    speed = sum(result.samples for result in results) / sum(result.seconds for result in results)
    return f"Validation-accuracy={results[-1].validation_accuracy:.6f} images/s={speed:.1f}"
