"""Test examples/gpt2.py like its users, with a tiny network: it survives lost ranks and refuses bad input."""

import re
import runpy
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.trainer.programs import stopped_gpt2
from tests.trainer.programs.processes import Rank, running

SCRIPT = Path(stopped_gpt2.SCRIPT)
PROGRAM = (str(Path(stopped_gpt2.__file__)),)
STEPS = 40
TOKENS, TOKEN_COUNT = 64, 4000
SMALL = (
    *("--layers", "2", "--heads", "2", "--width", "32", "--length", "16", "--vocabulary", str(TOKENS)),
    # Each of two ranks has five sequences, in micro-batches of three and two.
    *("--batch-size", "3", "--total-batch", "10", "--eval-batch", "7", "--lr", "0.01", "--warmup", "5"),
    *("--steps", str(STEPS), "--log-every", "5", "--save-every", "5"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write files of tokens that a network can learn: each follows from the previous one, with some noise."""
    directory = tmp_path_factory.mktemp("tokens")
    random = np.random.default_rng(0)
    for name in ("train.bin", "val.bin"):
        tokens = np.cumsum(random.integers(1, 4, TOKEN_COUNT)) % TOKENS
        tokens.astype(np.uint16).tofile(directory / name)
    return directory


@contextmanager
def training(
    data: Path, *more: str, nodes: tuple[Path, ...], count: int = 2, stopped: str = ""
) -> Iterator[list[Rank]]:
    """Run ranks that each have a node, with separate directories or a shared one; perhaps stop one of them."""
    for node in nodes:
        node.mkdir(exist_ok=True)
    options = ("--data", str(data), *SMALL, *more)
    variables = {stopped_gpt2.VARIABLE: stopped} if stopped else {}
    with running(
        *options, directory=nodes[0].parent, directories=nodes, count=count, program=PROGRAM, variables=variables
    ) as ranks:
        yield ranks


def finish(ranks: list[Rank]) -> tuple[float, float]:
    """Wait for a successful end; return the last loss of training and of val.bin."""
    for rank in ranks:
        assert rank.wait() == 0, rank.log.read_text()
    printed = ranks[0].out.read_text()
    [loss] = re.findall(rf"^step {STEPS} loss (\S+) norm \S+ lr \S+ tokens/s \d+ MFU unknown$", printed, re.MULTILINE)
    [validation_loss] = re.findall(rf"^step {STEPS} validation loss (\S+)$", printed, re.MULTILINE)
    return float(loss), float(validation_loss)


def checkpoints(node: Path) -> list[int]:
    """Return the steps of a node's checkpoints; nothing else may be there."""
    [directory] = (node / "gpt2-out").iterdir()
    assert directory.name == f"layers2-heads2-width32-length16-vocabulary{TOKENS}"
    return sorted(int(path.name.removeprefix("step-")) for path in directory.iterdir())


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[float, float]:
    node = tmp_path_factory.mktemp("undisturbed") / "shared"
    with training(data, nodes=(node, node)) as ranks:
        losses = finish(ranks)
    assert losses[0] < 2.5
    assert checkpoints(node) == [STEPS - 5, STEPS]
    return losses


def test_lost_first_node_does_not_change_the_loss(data: Path, undisturbed: tuple[float, float], tmp_path: Path) -> None:
    nodes = (tmp_path / "node0", tmp_path / "node1")
    with training(data, nodes=nodes, stopped="0 12 SIGKILL") as ranks:
        # Its peer notices without help.
        assert [ranks[0].wait(), ranks[1].wait() != 0] == [-signal.SIGKILL, True]
    with training(data, nodes=(tmp_path / "replacement", nodes[1])) as ranks:
        assert finish(ranks) == undisturbed
    assert re.search(r"^resuming after step \d+ from \S+/gpt2-out$", ranks[0].out.read_text(), re.MULTILINE)


def test_fsdp_saves_on_sigterm_and_resumes(data: Path, undisturbed: tuple[float, float], tmp_path: Path) -> None:
    shared = (tmp_path / "shared",) * 2
    with training(data, "--fsdp", "--save-every", "7", nodes=shared, stopped="1 10 SIGTERM") as ranks:
        assert [rank.wait() for rank in ranks] == [128 + signal.SIGTERM] * 2, ranks[0].log.read_text()
    [step] = re.findall(r"^stopped by SIGTERM after step (\d+), with a checkpoint$", ranks[0].out.read_text(), re.M)
    assert 10 <= int(step) < STEPS
    with training(data, "--fsdp", "--save-every", "7", nodes=shared) as ranks:
        assert finish(ranks) == pytest.approx(undisturbed, abs=1e-3)
    assert f"\nresuming after step {step} from {shared[0]}/gpt2-out\n" in ranks[0].out.read_text()
    assert checkpoints(shared[0]) == [STEPS - STEPS % 7, STEPS]


def test_fsdp_needs_a_shared_directory(data: Path, tmp_path: Path) -> None:
    with training(data, "--fsdp", nodes=(tmp_path / "node0", tmp_path / "node1")) as ranks:
        assert [rank.wait() for rank in ranks] == [1, 1]
    message = "gpt2.py: --fsdp on several nodes needs a directory in --out that they share, got "
    assert ranks[0].log.read_text() == f"{message}{tmp_path}/node0/gpt2-out\n"


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (None, "no such file: {path} (how to make one: the first lines of gpt2.py)"),
        (np.zeros(16), "{path} must have at least 17 uint16 tokens, 2 bytes each, got 32 bytes"),
        (np.full(100, TOKENS), "{path} has the token 64, --vocabulary has 64"),
    ],
)
def test_bad_token_files_are_refused(tmp_path: Path, tokens: np.ndarray | None, message: str) -> None:
    path = tmp_path / "train.bin"
    if tokens is not None:
        tokens.astype(np.uint16).tofile(path)
    with training(tmp_path, nodes=(tmp_path / "node",), count=1) as [rank]:
        assert rank.wait() == 1
    assert rank.log.read_text() == f"gpt2.py: {message.format(path=path)}\n"


def test_unwritable_out_is_one_line(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "out"
    with training(data, "--out", str(out), nodes=(tmp_path / "node",), count=1) as [rank]:
        assert rank.wait() == 1
    assert rank.log.read_text() == f"gpt2.py: cannot write to --out {out}: Not a directory\n"


def micro_batches(starts: np.ndarray, batch_size: int, flag: str = "", *, rank: int, ranks: int) -> list[np.ndarray]:
    """Call the function of the script as this rank of a job."""
    split = runpy.run_path(str(SCRIPT))["micro_batches"]
    split.__globals__["dist"] = SimpleNamespace(get_rank=lambda: rank, get_world_size=lambda: ranks)
    batches: list[np.ndarray] = split(starts, batch_size, flag)
    return batches


def test_any_number_of_ranks_shares_all_sequences_of_a_step() -> None:
    starts = np.arange(50)
    for ranks in range(1, 8):
        parts = [micro_batches(starts, 4, rank=rank, ranks=ranks) for rank in range(ranks)]
        assert len({len(batches) for batches in parts}) == 1
        sizes = [len(batch) for batches in parts for batch in batches]
        assert (min(sizes) > 0, max(sizes) <= 4) == (True, True)
        assert sorted(np.concatenate([batch for batches in parts for batch in batches])) == [*starts]


def test_batch_that_does_not_fit_is_refused_by_its_flag() -> None:
    assert len(micro_batches(np.arange(512), 12, "--total-batch:", rank=0, ranks=512)) == 1
    message = "gpt2.py: --eval-batch: 480 sequences cannot be split over 512 processes, 12 at once"
    with pytest.raises(SystemExit, match=f"^{message}$"):
        micro_batches(np.arange(480), 12, "--eval-batch:", rank=0, ranks=512)


def test_resumed_run_takes_its_own_rates() -> None:
    args = SimpleNamespace(lr=2.0, warmup=3, steps=13, weight_decay=0.25)
    # As a checkpoint of another run left them.
    optimizer = SimpleNamespace(param_groups=[{"lr": 7.0, "weight_decay": 0.1}, {"lr": 7.0, "weight_decay": 0.1}])
    set_rates = runpy.run_path(str(SCRIPT))["set_rates"]
    rates = []
    for step in (1, 3, 4, 9, 14):
        set_rates(optimizer, step, args)
        rates.append(optimizer.param_groups[0]["lr"])
        assert [group["weight_decay"] for group in optimizer.param_groups] == [0.25, 0.0]
        assert len({group["lr"] for group in optimizer.param_groups}) == 1
    # Up to the highest rate in the warmup, and along a cosine to a tenth of it.
    assert rates == pytest.approx([0.5, 1.5, 2.0, 1.1, 0.2])


def test_speed_is_without_what_came_before_a_restart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Steps 21 to 25 take 10 s, an evaluation takes 990 s, steps 27 and 28 take 6 s.
    clock = iter((0.0, 10.0, 10.0, 1000.0, 1006.0, 1006.0))
    script = runpy.run_path(str(SCRIPT))["Trainer"]
    report = script.report.__globals__
    report["dist"] = SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda: 2, all_reduce=lambda _: None)
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    trainer = script.__new__(script)
    trainer.args = SimpleNamespace(total_batch=10, length=16, layers=2, width=32, fsdp=False)
    trainer.num_params, trainer.peak = 1000, 1e6
    trainer.optimizer = SimpleNamespace(param_groups=[{"lr": 0.01}])
    loss, norm = torch.tensor(160.0), torch.tensor(2.0)
    trainer.restart_clock(20)
    trainer.report(25, loss, norm)
    trainer.restart_clock(26)
    trainer.report(28, loss, norm)
    # 80 tokens/s * (6 * 1000 + 12 * 2 * 32 * 16) operations, of 2 * 10^6.
    assert capsys.readouterr().out.splitlines() == [
        "step 25 loss 1.000000 norm 2.000 lr 1.00e-02 tokens/s 80 MFU 73.2%",
        "step 28 loss 1.000000 norm 2.000 lr 1.00e-02 tokens/s 53 MFU 48.8%",
    ]
