"""Act as a colleague of the user: another SSH key, from the same machine."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.support.deployed_cluster import DeployedCluster

KEYS_TIMEOUT_S: Final = 180
"""Seconds until a deployed change of the keys has reached every node."""
LOGIN_TIMEOUT_S: Final = 180
SSH_FAILED: Final = 255
"""Exit code of ssh itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Colleague:
    """A key that only ``ssh_keys`` admits. The way to a worker is the user's own: through the master."""

    cluster: DeployedCluster
    key: Path

    def log_in(self, host: str, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command on a node; return its result, even for a refused login."""
        return subprocess.run(
            self._command(host, command),
            env=dict(self.cluster.user.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LOGIN_TIMEOUT_S,
        )

    def output(self, host: str, command: str) -> str:
        """Return a command's output; the login must succeed."""
        done = self.log_in(host, command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def session(self, host: str) -> Iterator[subprocess.Popen[str]]:
        """Keep a session open once the key has reached the node."""
        deadline = time.monotonic() + KEYS_TIMEOUT_S
        while (tried := self.log_in(host, "true")).returncode:
            assert time.monotonic() < deadline, f"waited {KEYS_TIMEOUT_S} s for the key on {host}: {tried.stderr}"
            time.sleep(1)
        with subprocess.Popen(
            self._command(host, "echo in; exec sleep 1000"),
            env=dict(self.cluster.user.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "in\n"
                yield process
            finally:
                process.kill()

    def _command(self, host: str, command: str) -> Sequence[str]:
        own = ("-a", "-o", "IdentityAgent=none", "-o", "IdentitiesOnly=yes", "-o", f"IdentityFile={self.key}")
        # -a follows ssh_command's -A, and the last one wins.
        return self.cluster.user.ssh_command(host, command, options=own)


def new_colleague(cluster: DeployedCluster, directory: Path, *, name: str) -> Colleague:
    """Make the colleague's key."""
    key = directory / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", key], check=True)
    return Colleague(cluster=cluster, key=key)
