"""Nodes that do not have the directory of the job."""

import asyncio
import shutil
from pathlib import Path

import pytest

from launcher.detached.unit import LogSink
from launcher.hosts.hostfile import Host
from launcher.job.missing_cwd import MissingCwd
from tests.launcher.conftest import ADDRESSES, Cluster, said

HOSTS = [Host(name=name) for name in ("a", "b", "c")]


@pytest.mark.parametrize(
    ("cwd_missing", "line"),
    [
        ("", ""),
        ("b", "b has no /p to enter: it runs the job in the home directory; --sync-dst-dir brings it"),
        ("cb", "b and 1 more have no /p to enter: they run the job in the home directory; --sync-dst-dir brings it"),
    ],
)
def test_one_line_names_those_without_it_when_all_have_answered(tmp_path: Path, cwd_missing: str, line: str) -> None:
    log = LogSink(tmp_path)
    missing_cwd = MissingCwd(HOSTS, wanted="/p", notes=log)

    async def answer(*hosts: Host) -> None:
        for host in hosts:
            await missing_cwd.heard(host, cwd_missing=host.name in cwd_missing)
            # Its end, later, says nothing new.
            await missing_cwd.heard(host, cwd_missing=False)

    asyncio.run(answer(*HOSTS[:0:-1]))
    assert "/p" not in log_text(tmp_path)
    asyncio.run(answer(HOSTS[0]))
    assert log_text(tmp_path) == (f"launch: {line}\n" if line else "")


def log_text(directory: Path) -> str:
    return "".join(path.read_text() for path in directory.iterdir())


def test_ranks_without_the_directory_run_at_home_and_a_line_says_so(cluster: Cluster) -> None:
    # Gone before the nodes are told what to run: of three on one machine none has it then.
    project = cluster.directory / "project"
    project.mkdir()
    real = shutil.which("ssh", path=cluster.environment["PATH"])
    ssh = cluster.program("ssh", f'rmdir {project} 2>/dev/null; exec {real} "$@"')
    path = f"{ssh.parent}:{cluster.environment['PATH']}"
    result = cluster.run("true", cwd=project, environment={"PATH": path})
    assert result.code == 0
    assert said(result.stderr) == [
        f"launch: {ADDRESSES[0]} and 2 more have no {project} to enter: they run the job in the home directory; "
        "--sync-dst-dir brings it"
    ]
