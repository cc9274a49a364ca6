"""Provide three nodes, the second and third behind real sshd processes, and copies of the launcher."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.launcher.loopback_cluster import (
    ADDRESSES,
    SHORT_GRACE_S,
    SHORT_HEARTBEAT_TIMEOUT_S,
    LoopbackCluster,
    change_constants,
    copy_launcher,
)
from tests.launcher.sshd import client_config, make_key, sshd_nodes


@pytest.fixture(scope="session")
def short_timeout_launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the launcher, with shorter deadlines; a process that pauses for 5 s still counts as alive."""
    copy = copy_launcher(tmp_path_factory.mktemp("short_timeout_launcher"))
    change_constants(
        copy,
        {
            "transport/protocol.HEARTBEAT_INTERVAL_S": 0.5,
            "transport/protocol.HEARTBEAT_TIMEOUT_S": SHORT_HEARTBEAT_TIMEOUT_S,
            "spec.DEFAULT_GRACE_S": SHORT_GRACE_S,
        },
    )
    return copy


@pytest.fixture(scope="session")
def patient_launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the launcher, with deadlines that no slow machine exceeds."""
    copy = copy_launcher(tmp_path_factory.mktemp("patient_launcher"))
    change_constants(
        copy,
        {
            "frameworks/orted/command_handoff.MPIRUN_EXIT_TIMEOUT_S": 60.0,
            "job_records/git.TIMEOUT_S": 60.0,
            "job_records/recorder.UPLOAD_AFTER_S": 600.0,
            "job_records/record_upload.TIMEOUT_S": 60.0,
            "job/connect.READY_TIMEOUT_S": 60.0,
            "job/supervision.SERVER_EXIT_S": 60.0,
            "runner/gpu_usage.TIMEOUT_S": 60.0,
            "transport/connection.EXIT_TIMEOUT_S": 60.0,
            "transport/ssh.CONNECT_TIMEOUT_S": 60,
        },
    )
    return copy


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Create a directory with an `ssh` that leads to sshd on the second and third address."""
    directory = tmp_path_factory.mktemp("nodes")
    authorized = make_key(directory / "identity")
    with sshd_nodes(directory, ADDRESSES[1:], authorized=authorized) as running:
        port = running[0].port
        known = "".join(f"[{node.address}]:{port} {node.host_key}\n" for node in running)
        (directory / "known_hosts").write_text(known)
        client_config(
            directory / "ssh_config",
            port=port,
            identity=directory / "identity",
            known_hosts=directory / "known_hosts",
        )
        wrapper = directory / "bin" / "ssh"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {directory}/ssh_config "$@"\n')
        wrapper.chmod(0o755)
        yield directory


@pytest.fixture
def cluster(nodes: Path, tmp_path: Path) -> Iterator[LoopbackCluster]:
    path = f"{nodes}/bin:{Path(sys.executable).parent}:/usr/bin:/bin"
    # Without a runtime directory, no launch keeps connections for another test's.
    environment = {"PATH": path, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "none")}
    cluster = LoopbackCluster(directory=tmp_path, environment=environment)
    yield cluster
    outlived = cluster.ranks()
    for pid in outlived:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert outlived == [], "a rank outlived its job"
