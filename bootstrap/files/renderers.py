"""What the shared files say about the members: pure renderers, text in, text out."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from bootstrap.cluster.membership import Member
from bootstrap.contract import (
    AUTHORIZED_KEYS_DIR,
    BUCKET_VARIABLE,
    CLUSTER_KEY_FILE,
    GPU_COUNT_VARIABLE,
    INSTANCE_ID_VARIABLE,
    MASTER_HOST,
    WORKERS_COUNT_VARIABLE,
    WORKERS_FILE,
    WORKERS_PATH_VARIABLE,
    worker_host,
)

SSH_CLIENT: Final = """\
Host deeplearning-*
    ForwardAgent no
    StrictHostKeyChecking yes
"""
"""A person's agent comes as far as the master: whoever is root on a node that has it can sign with it."""
SSH_CLIENT_WITH_KEY: Final = f"""\
{SSH_CLIENT}Match host deeplearning-* exec "test -r {CLUSTER_KEY_FILE}"
    IdentitiesOnly yes
    IdentityFile {CLUSTER_KEY_FILE}
    IdentityFile ~/.ssh/id_ed25519
    IdentityFile ~/.ssh/id_rsa
"""
"""On the master. Naming one identity file switches the usual ones off, hence the others; an agent with many
keys would use up the tries that sshd allows."""
_SSHD: Final = f"AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys2 {AUTHORIZED_KEYS_DIR}/%u\n"
SSHD_MASTER: Final = f"AllowAgentForwarding yes\n{_SSHD}"
SSHD_WORKER: Final = f"AllowAgentForwarding no\n{_SSHD}"


def host_names(node_index: int) -> list[str]:
    """Names of an index: the master is a training node too, so node index 1 has two."""
    return [MASTER_HOST, worker_host(node_index)] if node_index == 1 else [worker_host(node_index)]


def hosts_lines(members: Iterable[Member], *, also: Mapping[int, str] | None = None) -> str:
    """Lines for /etc/hosts; ``also`` has a further name by node index."""
    further = also or {}

    def line(member: Member) -> str:
        names = [
            *host_names(member.node_index),
            *([further[member.node_index]] if member.node_index in further else []),
        ]
        return f"{member.address} {' '.join(names)}\n"

    return "".join(map(line, _by_index(members)))


def known_hosts_lines(members: Iterable[Member]) -> str:
    """Lines for the system-wide known hosts: each node by every name somebody may use."""
    return "".join(
        f"{','.join([*host_names(member.node_index), member.address])} {member.host_key}\n"
        for member in _by_index(members)
    )


def workers_file(members: Iterable[Member]) -> str:
    """One alias a line, in index order."""
    return "".join(f"{worker_host(member.node_index)}\n" for member in _by_index(members))


def authorized_keys(master: Member | None) -> str:
    """Who may log in besides the user's own keys: the master's processes, from the master's address only."""
    if master is None or not master.ssh_key:
        return ""
    return f'from="{master.address}" {master.ssh_key} deeplearning-cdk\n'


def variables(*, workers_count: int, gpu_count: int, bucket: str, instance_id: str) -> dict[str, str]:
    """The variables that every process on a node sees."""
    return {
        WORKERS_PATH_VARIABLE: WORKERS_FILE,
        WORKERS_COUNT_VARIABLE: str(workers_count),
        GPU_COUNT_VARIABLE: str(gpu_count),
        BUCKET_VARIABLE: bucket,
        INSTANCE_ID_VARIABLE: instance_id,
    }


def profile_script(values: Mapping[str, str]) -> str:
    """Script for /etc/profile.d."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def environment_lines(values: Mapping[str, str]) -> str:
    """Lines for /etc/environment, which pam_env reads; it is no shell and knows no quoting."""
    return "".join(f"{name}={value}\n" for name, value in values.items())


def systemd_environment(values: Mapping[str, str]) -> str:
    """Drop-in for the system manager; assignments of other drop-ins stay."""
    pairs = " ".join(f'"{name}={value}"' for name, value in values.items())
    return f"[Manager]\nDefaultEnvironment={pairs}\n"


def _by_index(members: Iterable[Member]) -> list[Member]:
    return sorted(members, key=lambda member: member.node_index)
