"""Test the line about nodes that lack the job's directory."""

import asyncio
import shutil
from pathlib import Path

import pytest

from launcher.detached.unit import LogSink
from launcher.hosts.hostfile import Host
from launcher.job.missing_cwd import MissingCwd
from tests.launcher.loopback_cluster import ADDRESSES, LoopbackCluster, launcher_lines

HOSTS = [Host(name=name) for name in ("a", "b", "c")]


@pytest.mark.parametrize(
    ("cwd_missing", "line"),
    [
        ("", ""),
        ("b", "cannot enter /p on b; running in the home directory there (--sync-dst-dir copies it)"),
        ("cb", "cannot enter /p on b and 1 more; running in the home directory there (--sync-dst-dir copies it)"),
    ],
)
def test_one_line_names_the_nodes_without_the_directory(tmp_path: Path, cwd_missing: str, line: str) -> None:
    log = LogSink(tmp_path)
    missing_cwd = MissingCwd(HOSTS, cwd="/p", stderr=log)

    async def answer(*hosts: Host) -> None:
        for host in hosts:
            await missing_cwd.record_answer(host, cwd_missing=host.name in cwd_missing)
            # The node's later end adds nothing.
            await missing_cwd.record_answer(host, cwd_missing=False)

    asyncio.run(answer(*HOSTS[:0:-1]))
    assert "/p" not in log_text(tmp_path)
    asyncio.run(answer(HOSTS[0]))
    assert log_text(tmp_path) == (f"launch: {line}\n" if line else "")


def log_text(directory: Path) -> str:
    return "".join(path.read_text() for path in directory.iterdir())


def test_ranks_without_the_directory_run_in_the_home_directory(cluster: LoopbackCluster) -> None:
    # The directory is gone before the nodes get their specs; all three share a machine, so all lack it.
    project = cluster.directory / "project"
    project.mkdir()
    real = shutil.which("ssh", path=cluster.environment["PATH"])
    ssh = cluster.write_program("ssh", f'rmdir {project} 2>/dev/null; exec {real} "$@"')
    path = f"{ssh.parent}:{cluster.environment['PATH']}"
    result = cluster.run("true", cwd=project, environment={"PATH": path})
    assert result.code == 0
    assert launcher_lines(result.stderr) == [
        f"launch: cannot enter {project} on {ADDRESSES[0]} and 2 more; running in the home directory there "
        "(--sync-dst-dir copies it)"
    ]
