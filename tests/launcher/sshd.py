"""Run real sshd processes on loopback addresses, as the test's own user."""

import getpass
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from local.run.processes import die_with_parent
from tests.ports import held_port

SSHD = "/usr/sbin/sshd"
PRIVILEGE_SEPARATION = Path("/run/sshd")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A running sshd."""

    address: str
    port: int
    host_key: str


def make_key(path: Path) -> str:
    """Create a key pair at `path`; return the public half, only type and key."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True, timeout=30)
    return " ".join(Path(f"{path}.pub").read_text().split()[:2])


@contextmanager
def sshd_nodes(
    directory: Path,
    addresses: list[str],
    *,
    authorized: str,
    port: int | None = None,
    homes: Mapping[str, Path] | None = None,
) -> Iterator[list[Node]]:
    """Run an sshd with its own host key on each address, all on one port, by default a free one.

    They share a home directory unless `homes` names others.
    """
    homes = homes or dict.fromkeys(addresses, directory)
    (directory / "authorized_keys").write_text(f"{authorized}\n")
    with ExitStack() as stack:
        if os.getuid() == 0:
            make_privilege_separation_directory()
        at = port or stack.enter_context(held_port())
        yield [stack.enter_context(_sshd(directory, address, at, homes[address])) for address in addresses]


def make_privilege_separation_directory() -> None:
    """Create the directory that sshd requires, like Debian's package; nothing removes it."""
    PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)


@contextmanager
def _sshd(directory: Path, address: str, port: int, home: Path) -> Iterator[Node]:
    key = directory / f"host_key_{address}"
    host_key = make_key(key)
    config = directory / f"sshd_config_{address}"
    config.write_text(
        f"ListenAddress {address}:{port}\n"
        f'HostKey "{key}"\n'
        f'AuthorizedKeysFile "{directory}/authorized_keys"\n'
        # Use another home, so that the user's own shell start-up files do not run.
        f'SetEnv "PATH={Path(sys.executable).parent}:/usr/bin:/bin" "HOME={home}"\n'
        "PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n"
    )
    command = [SSHD, "-D", "-e", "-f", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent) as process:
        assert process.stderr is not None
        try:
            output = process.stderr.readline()
            assert "Server listening" in output, output
            # Later log lines must not block it.
            with subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL):
                try:
                    yield Node(address=address, port=port, host_key=host_key)
                finally:
                    process.terminate()
        finally:
            process.terminate()


def client_config(path: Path, *, port: int, identity: Path, known_hosts: Path) -> None:
    """Write an ssh client configuration that leads to the nodes and touches nothing of the user's."""
    path.write_text(
        "Host 127.*\n"
        f"  User {getpass.getuser()}\n"
        f"  Port {port}\n"
        f"  IdentityFile {identity}\n"
        "  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {path.parent}/user_known_hosts\n"
        f"  GlobalKnownHostsFile {known_hosts}\n"
    )
