"""Run the trainer like its users: one process per rank, on the loopback interface."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import held_port
from tests.trainer.programs import forked
from tests.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parents[3]
DEADLINE_S = 240.0
POLL_S = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    process: subprocess.Popen[bytes] | forked.Forked
    out: Path
    log: Path

    def wait(self, *, timeout_s: float = DEADLINE_S) -> int:
        return self.process.wait(timeout=timeout_s)

    def wait_for_log(self, text: str, *, timeout_s: float = DEADLINE_S) -> None:
        def is_there() -> bool:
            ended = self.process.poll() is not None
            found = text in self.log.read_text()
            assert found or not ended, self.log.read_text()
            return found

        wait_until(is_there, f"{text!r} in {self.log}", timeout_s=timeout_s, every_s=POLL_S)

    @property
    def digests(self) -> list[str]:
        """Return the digest of the weights after each epoch."""
        return re.findall(r"weights=(\S+)", self.log.read_text())


@contextmanager
def running(
    *arguments: str,
    directory: Path,
    count: int = 1,
    started: int | None = None,
    program: Sequence[str] = ("-m", "trainer"),
    directories: Sequence[Path] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[list[Rank]]:
    """Run ranks in ``directory``, or each in its own; none of them outlives the block."""
    with held_port() as port:
        ranks = [
            _start(
                program,
                arguments,
                rank=rank,
                count=count,
                port=port,
                directory=directory,
                cwd=directories[rank] if directories else directory,
                variables=variables or {},
            )
            for rank in range(count if started is None else started)
        ]
        try:
            yield ranks
        finally:
            for rank in ranks:
                rank.process.kill()
                rank.process.wait()


def run(
    *arguments: str,
    directory: Path,
    count: int = 1,
    program: Sequence[str] = ("-m", "trainer"),
    variables: Mapping[str, str] | None = None,
) -> list[Rank]:
    """Run ranks to their end; all must succeed."""
    with running(*arguments, directory=directory, count=count, program=program, variables=variables) as ranks:
        for rank in ranks:
            assert rank.wait() == 0, rank.log.read_text()
    return ranks


def _start(
    program: Sequence[str],
    arguments: Sequence[str],
    *,
    rank: int,
    count: int,
    port: int,
    directory: Path,
    cwd: Path,
    variables: Mapping[str, str],
) -> Rank:
    out, log = directory / f"rank{rank}.out", directory / f"rank{rank}.log"
    environment = {
        "PATH": os.environ["PATH"],
        # As on separate machines, paths in the home directory are the same on all ranks.
        "HOME": str(cwd),
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": "1",
        "DEEPLEARNING_INSTANCE_ID": f"i-{rank:017x}",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        **variables,
    }
    if forked.can_run(program, variables):
        process = forked.Forked(program, arguments, environment=environment, cwd=cwd, out=out, log=log)
        return Rank(process=process, out=out, log=log)
    with out.open("wb") as out_file, log.open("wb") as log_file:
        own = subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=log_file,
        )
    return Rank(process=own, out=out, log=log)
