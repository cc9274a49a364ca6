"""Check the trainer on two GPUs of one machine, with NCCL; with unittest, because the machine may have no pytest."""

import tempfile
import unittest
from pathlib import Path

import torch

from tests.trainer.distributed.weights import distance
from tests.trainer.programs.processes import run, running
from trainer.backend import Weights
from trainer.checkpoint.format import load_checkpoint

OPTIONS = (
    *("--benchmark", "1", "--num-examples", "600", "--num-epochs", "2", "--lr", "0.001", "--last-batch", "keep"),
    *("--kv-store", "dist_sync", "--model-prefix", "net", "--disp-batches", "1", "--dtype", "float32"),
)
VARIABLES = {"NCCL_SOCKET_IFNAME": "lo"}


class TwoGpus(unittest.TestCase):
    """Two ranks, each with its own GPU, as on two machines."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def weights(self, *options: str, count: int, program: tuple[str, str] | None = None) -> Weights:
        program = program or program_with()
        place = Path(tempfile.mkdtemp(dir=self.directory))
        size = str(64 // count)
        ranks = run(
            *OPTIONS, "--batch-size", size, *options, directory=place, count=count, program=program, variables=VARIABLES
        )
        assert len({rank.digests[-1] for rank in ranks}) == 1
        return load_checkpoint(place / "net-0002.npz").state.weights

    def test_two_ranks_learn_the_same_as_one(self) -> None:
        one = self.weights(count=1)
        for options, tolerance in (
            ((), 1e-4),
            (("--gc-type", "fp16"), 1e-3),
            (("--gc-type", "bf16"), 5e-3),
            (("--dtype", "float16"), 1e-2),
        ):
            with self.subTest(str(options)):
                found = self.weights(*options, count=2)
                assert distance(found, one) < tolerance

    def test_ddp_adds_up_to_the_same_as_buckets(self) -> None:
        flat = self.weights("--reduction", "buckets", count=2)
        for options, tolerance in (
            ((), 1e-5),
            (("--gradient-accumulation", "2"), 1e-5),
            (("--dtype", "float16"), 1e-2),
            (("--compile", "1"), 1e-4),
            (("--compile", "graphs"), 1e-4),
        ):
            with self.subTest(str(options)):
                accumulated = "--gradient-accumulation" in options
                alike = self.weights(*options, "--reduction", "buckets", count=2) if accumulated else flat
                found = self.weights(*options, "--reduction", "ddp", count=2)
                assert distance(found, alike) < tolerance

    def test_buckets_beside_the_backward_pass_add_up_to_the_same(self) -> None:
        flat = self.weights("--reduction", "buckets", count=2)
        buckets = program_with("patch('trainer.distributed.reduce.gradient_buckets.BUCKET_BYTES', 100_000).start()")
        for options, tolerance in (
            ((), 1e-5),
            (("--gradient-accumulation", "2"), 1e-5),
            (("--gc-type", "fp16"), 1e-3),
            (("--dtype", "float16"), 1e-2),
            (("--compile", "graphs"), 1e-4),
        ):
            with self.subTest(str(options)):
                accumulated = "--gradient-accumulation" in options
                alike = self.weights(*options, "--reduction", "buckets", count=2) if accumulated else flat
                found = self.weights(*options, "--reduction", "buckets", count=2, program=buckets)
                assert distance(found, alike) < tolerance

    def test_rank_lost_at_the_end_of_an_epoch_is_one_line(self) -> None:
        program = program_with(
            "from datetime import timedelta; "
            "patch('trainer.distributed.reduce.reducers.STEP_TIMEOUT', timedelta(seconds=5)).start(); "
            "stop = lambda *_, **__: os.kill(os.getpid(), signal.SIGSTOP); "
            "os.environ['RANK'] == '1' and patch('trainer.train.all_gather', stop).start()"
        )
        with running(*OPTIONS, directory=self.directory, count=2, program=program, variables=VARIABLES) as ranks:
            assert ranks[0].wait() == 1
            last_line = ranks[0].log.read_text().splitlines()[-1]
            assert "the GPU has not finished its work within 5 s, another rank may be lost" in last_line
            assert "Traceback" not in ranks[0].log.read_text()

    def test_killed_rank_ends_the_other_with_one_line(self) -> None:
        options = (*OPTIONS, "--num-epochs", "1000")
        with running(*options, directory=self.directory, count=2, program=program_with(), variables=VARIABLES) as ranks:
            ranks[0].wait_for_log("Batch [2]")
            ranks[1].process.kill()
            assert ranks[0].wait() != 0
            assert "Traceback" not in ranks[0].log.read_text()

    def test_each_rank_uses_its_own_gpu_alone_where_it_sees_all(self) -> None:
        # A thread that has not selected its rank's GPU creates a context on GPU 0, of half a GB.
        program = (
            "-c",
            "import os; os.environ['LOCAL_RANK'] = os.environ['RANK']; "
            "os.environ['LOCAL_WORLD_SIZE'] = os.environ['WORLD_SIZE']; "
            "from trainer.train import main; code = main(); import torch; "
            "used = [n for n in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(n)]; "
            "print('contexts', used, flush=True); os._exit(code)",
        )
        place = Path(tempfile.mkdtemp(dir=self.directory))
        ranks = run(*OPTIONS, "--batch-size", "64", directory=place, count=2, program=program, variables=VARIABLES)
        for number, rank in enumerate(ranks):
            assert f"contexts [{number}]" in rank.out.read_text(), rank.out.read_text()

    @unittest.skipUnless(torch.cuda.device_count() >= 4, "two nodes of two ranks take four GPUs")
    def test_gradients_are_compressed_between_nodes_alone(self) -> None:
        two_nodes = (
            "rank = int(os.environ['RANK']); "
            "os.environ.update(LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE='2', NCCL_HOSTID=f'node{rank // 2}'); "
            "os.environ['CUDA_VISIBLE_DEVICES'] = '0,1' if rank < 2 else '2,3'"
        )
        for options, tolerance in ((("--gc-type", "fp16"), 1e-3), (("--gc-type", "bf16"), 5e-3)):
            with self.subTest(str(options)):
                # --batch-size is per node, which has two ranks here.
                found, one = (
                    self.weights(*each, "--batch-size", size, count=count, program=program)
                    for each, size, count, program in (
                        (options, "32", 4, program_with(two_nodes)),
                        ((), "64", 1, None),
                    )
                )
                assert distance(found, one) < tolerance


def program_with(change: str = "pass") -> tuple[str, str]:
    """Return the trainer's program with a change; each rank sees one GPU."""
    return (
        "-c",
        "import os, signal; from unittest.mock import patch; "
        f"os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['RANK']; {change}; "
        "from trainer.train import main_and_exit; main_and_exit()",
    )
