"""Bring a node's files up to date with the membership."""

import json
import pwd
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bootstrap import contract
from bootstrap.atomic_file import Permissions, write_and_act, write_block, write_file
from bootstrap.cluster.membership import NO_MEMBERSHIP, Member, Membership, member_row
from bootstrap.cluster.record_validation import Networks, RecordError
from bootstrap.cluster.records import parse_state
from bootstrap.config import NodeConfig
from bootstrap.errors import ConfigError
from bootstrap.files import environment, hosts, ssh
from bootstrap.files.paths import pending_file, run_file, under_root
from bootstrap.files.scratch import ensure_scratch_directory
from bootstrap.files.workers import workers_file
from bootstrap.team_keys.keys import parse
from bootstrap.team_keys.logins import replace_team_keys

if TYPE_CHECKING:
    from bootstrap.dependencies import AgentDependencies


class AgentSystem(Protocol):
    """Commands of `bootstrap.system.System` that put a change of the agent into effect."""

    def set_environment(self, values: Mapping[str, str]) -> None:
        """Set the variables for every unit started from now on."""

    def reload_sshd(self) -> None:
        """Make a running sshd read its configuration again."""

    def make_key(self, file: Path, *, comment: str) -> None:
        """Write an ed25519 key pair without a passphrase to ``file`` and ``file.pub``."""

    def end_logins(self, names: Mapping[str, str]) -> None:
        """End the SSH connections accepted with these keys, named by fingerprint. Raises CommandError."""


def user_permissions(user: str) -> Permissions:
    """Return the mode and owner of a file of a login user. Raises ConfigError if there is no such user."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError as error:
        raise ConfigError(f"default_user must be a user of this machine, got {user!r}") from error
    return Permissions(uid=entry.pw_uid, gid=entry.pw_gid)


class NodeFiles:
    """Writes the files of one node."""

    def __init__(
        self,
        root: Path,
        *,
        user_name: str,
        bucket: str,
        system: AgentSystem,
        own_name: str | None = None,
        shared: str | None = None,
        arriving: int = 0,
    ) -> None:
        # Horovod's Gloo connects to the address of the machine's own name, so /etc/hosts must define it.
        self._own_name = own_name
        self._root = root
        self._user_name = user_name
        self._user = user_permissions(user_name)
        self._bucket = bucket
        self._shared = shared
        self._arriving = arriving
        self._system = system

    def write(self, membership: Membership, *, member: Member, gpu_count: int) -> list[str]:
        """Bring every file up to date; return the paths of changed files.

        The node's state is written last, so that a reader who finds a generation there also finds matching files.
        """
        values = environment.variables(
            environment.VariableInputs(
                workers_count=len(membership.training_members),
                gpu_count=gpu_count,
                bucket=self._bucket,
                instance_id=member.instance_id,
                scratch=ensure_scratch_directory(self._root),
                shared=self._shared,
            )
        )
        changed = {
            **self._write_members(membership, node_index=member.node_index),
            **self._write_variables(values),
            **self._write_ssh(membership, member=member),
            contract.NODE_STATE_FILE: write_file(
                self._path(contract.NODE_STATE_FILE), node_state(membership, member=member)
            ),
        }
        if member.node_type == contract.MASTER:
            # After the hosts: a launcher that no longer finds a node here finds it there.
            write_file(self._path(contract.ARRIVING_NODES_FILE), f"{self._arriving}\n")
        return [path for path, was_changed in changed.items() if was_changed]

    def _write_members(self, membership: Membership, *, node_index: int) -> dict[str, bool]:
        extra_names = {node_index: self._own_name} if self._own_name else {}
        lines = hosts.hosts_lines(membership.active_members, extra_names=extra_names)
        return {
            contract.HOSTS_FILE: write_block(self._path(contract.HOSTS_FILE), lines),
            contract.WORKERS_FILE: write_file(
                self._path(contract.WORKERS_FILE), workers_file(membership.training_members), self._user
            ),
        }

    def _write_variables(self, values: Mapping[str, str]) -> dict[str, bool]:
        return {
            contract.ENVIRONMENT_SCRIPT: write_file(
                self._path(contract.ENVIRONMENT_SCRIPT), environment.profile_script(values)
            ),
            contract.ENVIRONMENT_FILE: write_block(
                self._path(contract.ENVIRONMENT_FILE), environment.environment_lines(values)
            ),
            # systemd reads the drop-in only at boot; until then, set the variables directly.
            contract.SYSTEMD_ENVIRONMENT_FILE: write_and_act(
                self._path(contract.SYSTEMD_ENVIRONMENT_FILE),
                environment.systemd_environment(values),
                act=lambda: self._system.set_environment(values),
                pending=pending_file(self._root, "set-environment"),
            ),
        }

    def _write_ssh(self, membership: Membership, *, member: Member) -> dict[str, bool]:
        is_master = member.node_type == contract.MASTER
        authorized_keys = f"{contract.AUTHORIZED_KEYS_DIR}/{self._user_name}"
        team_keys, keys = f"{contract.TEAM_KEYS_DIR}/{self._user_name}", parse(membership.team_keys)
        return {
            authorized_keys: write_file(self._path(authorized_keys), ssh.authorized_keys(membership.master)),
            team_keys: replace_team_keys(
                self._path(team_keys),
                keys,
                ssh.team_keys(keys),
                removed=run_file(self._root, "removed-keys"),
                end_logins=self._system.end_logins,
            ),
            contract.KNOWN_HOSTS_FILE: write_block(
                self._path(contract.KNOWN_HOSTS_FILE), ssh.known_hosts_lines(membership.active_members)
            ),
            contract.SSH_CLIENT_CONFIG_FILE: write_file(
                self._path(contract.SSH_CLIENT_CONFIG_FILE), ssh.SSH_CLIENT_WITH_KEY if is_master else ssh.SSH_CLIENT
            ),
            contract.SSHD_CONFIG_FILE: write_and_act(
                self._path(contract.SSHD_CONFIG_FILE),
                ssh.SSHD_MASTER if is_master else ssh.SSHD_WORKER,
                act=self._system.reload_sshd,
                pending=pending_file(self._root, "reload-sshd"),
            ),
        }

    def _path(self, path: str) -> Path:
        return under_root(self._root, path)


def create_node_file_writer(config: NodeConfig, dependencies: "AgentDependencies", *, arriving: int) -> NodeFiles:
    """Return the writer of this node's files; ``arriving`` counts the instances that are not members yet."""
    return NodeFiles(
        dependencies.root,
        user_name=config.default_user,
        bucket=config.bucket,
        system=dependencies.system,
        own_name=socket.gethostname() if config.mxnet_environment else None,
        shared=None if config.shared_storage is None else contract.SHARED_DIR,
        arriving=arriving,
    )


def read_node_state(root: Path, *, instance_id: str, networks: Networks) -> Membership:
    """Return the membership in the node's state file.

    Return NO_MEMBERSHIP if this instance has written none since it booted.
    """
    try:
        state = parse_state(under_root(root, contract.NODE_STATE_FILE).read_text(), networks)
    except (OSError, RecordError):
        return NO_MEMBERSHIP
    if state.instance_id != instance_id:
        return NO_MEMBERSHIP
    return Membership(
        generation=state.generation,
        desired_nodes=state.desired_nodes,
        members=tuple(map(Member.of, state.members)),
    )


def node_state(membership: Membership, *, member: Member) -> str:
    """Render the state file; see contract.NODE_STATE_FILE."""
    state = {
        "instance_id": member.instance_id,
        "node_index": member.node_index,
        "generation": membership.generation,
        "desired_nodes": membership.desired_nodes,
        "members": [member_row(listed_member) for listed_member in membership.members],
    }
    return json.dumps(state, indent=2) + "\n"
