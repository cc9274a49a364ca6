"""Test the fingerprint of what a connection depends on at the launcher's end."""

import os
import pwd
from pathlib import Path

import pytest

from bootstrap.contract import CLUSTER_KEY_FILE, HOSTS_FILE
from bootstrap.files.ssh import SSH_CLIENT_WITH_KEY
from launcher.hosts.hostfile import Host
from launcher.transport import ssh
from launcher.transport.pool import fingerprints
from launcher.transport.pool.fingerprints import client_fingerprint, connection_fingerprint, local_host_names
from launcher.transport.pool.pool import open_pool

NAMES = {"deeplearning-worker2"}


@pytest.fixture(autouse=True)
def empty_ssh_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "SYSTEM_DIRECTORY", str(tmp_path / "etc-ssh"))


def test_client_fingerprint_is_stable(tmp_path: Path) -> None:
    before = {"HOME": str(tmp_path), "PATH": "/usr/bin", "PWD": "/a", "SHLVL": "1"}
    after = {**before, "PWD": "/b", "SHLVL": "2", "OLDPWD": "/a", "_": "/x"}
    assert client_fingerprint(before, home=str(tmp_path)) == client_fingerprint(after, home=str(tmp_path))


@pytest.mark.parametrize("change", [{"KRB5CCNAME": "/x"}, {"LANG": "C"}, {"PATH": "/bin"}, {"LD_PRELOAD": "/x.so"}])
def test_variables_of_ssh_change_the_fingerprint(tmp_path: Path, change: dict[str, str]) -> None:
    before = {"PATH": "/usr/bin", "LANG": "de_DE"}
    assert client_fingerprint(before, home=str(tmp_path)) != client_fingerprint(
        {**before, **change}, home=str(tmp_path)
    )


@pytest.mark.parametrize(
    ("configuration", "matters"),
    [
        ("Host *\n    SendEnv LANG LC_*\n", False),
        ("#\t$OpenBSD: ssh_config,v 1.36 2023/08/02 23:04:38 djm Exp $\n", False),
        ("HostName ${TARGET}\n", True),
        ("SendEnv MINE\n", True),
        ("ProxyCommand mine %h\n", True),
        ("KnownHostsCommand /bin/mine %H\n", True),
        ("Match host a exec mine\n", True),
    ],
)
def test_fingerprint_covers_all_variables_if_the_ssh_config_may_use_them(
    tmp_path: Path, configuration: str, matters: bool
) -> None:
    place = tmp_path / ".ssh/config.d/cluster"
    place.parent.mkdir(parents=True)
    place.write_text(configuration)
    one, other = (client_fingerprint({"SSH_CONNECTION": port}, home=str(tmp_path)) for port in ("1", "2"))
    assert (one != other) is matters


def test_clusters_own_ssh_configuration_uses_no_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / ".ssh/config"
    place.parent.mkdir()
    place.write_text(SSH_CLIENT_WITH_KEY)

    def states() -> set[str]:
        return {client_fingerprint({"SSH_CONNECTION": port}, home=str(tmp_path)) for port in ("1", "2")}

    # As the user's own file, it is not trusted to use no variables.
    assert len(states()) == 2
    monkeypatch.setattr(fingerprints, "SSH_CLIENT_CONFIG_FILE", str(place))
    assert len(states()) == 1


def test_user_without_an_account_has_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert open_pool([], seconds=60) is None


@pytest.mark.parametrize("name", ["known_hosts", "config.d/cluster"])
def test_changed_ssh_file_changes_the_fingerprint(tmp_path: Path, name: str) -> None:
    place = tmp_path / ".ssh" / name
    place.parent.mkdir(parents=True)
    place.write_text("one")
    before = client_fingerprint({}, home=str(tmp_path))
    assert client_fingerprint({}, home=str(tmp_path)) == before
    place.write_text("another")
    assert client_fingerprint({}, home=str(tmp_path)) != before


@pytest.mark.parametrize(
    "name", [HOSTS_FILE, CLUSTER_KEY_FILE, "/etc/passwd", "/etc/group", "/etc/resolv.conf", "/etc/environment"]
)
def test_machines_own_files_are_in_the_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before, stat = client_fingerprint({}, home=str(tmp_path)), os.stat

    def changed(place: str, **options: bool) -> os.stat_result:
        # Report another file's state, whether or not this one exists.
        return stat(tmp_path if place == name else place, **options)

    monkeypatch.setattr(os, "stat", changed)
    assert client_fingerprint({}, home=str(tmp_path)) != before


def test_another_port_or_command_changes_the_fingerprint() -> None:
    host = Host(name="deeplearning-worker2")
    ways = {
        connection_fingerprint(host, command, "g", local_names=NAMES, agent=None)
        for command in (["ssh", "a"], ["ssh", "b"])
    }
    ways |= {connection_fingerprint(Host(name=host.name, port=22), ["ssh", "a"], "g", local_names=NAMES, agent=None)}
    assert len(ways) == 3
    assert None not in ways


@pytest.mark.parametrize(("key", "matters"), [(True, False), (False, True)])
def test_fingerprint_covers_the_users_agent_only_without_the_cluster_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: bool, matters: bool
) -> None:
    monkeypatch.setattr(ssh, "CLUSTER_KEY_FILE", str(tmp_path / "key"))
    if key:
        (tmp_path / "key").write_text("key")
    host = Host(name="deeplearning-worker2")
    ways = {
        connection_fingerprint(host, ssh.ssh_command(host), "g", local_names=NAMES, agent=agent)
        for agent in (None, "/tmp/a", "/tmp/b")
    }
    assert len(ways) == (3 if matters else 1)


@pytest.mark.parametrize("name", ["gpu-box.example.com", "alias"])
def test_name_in_no_hosts_file_has_no_fingerprint(name: str) -> None:
    assert connection_fingerprint(Host(name=name), ["ssh"], "g", local_names=NAMES, agent=None) is None
    assert connection_fingerprint(Host(name="10.0.0.7"), ["ssh"], "g", local_names=NAMES, agent=None) is not None


def test_local_host_names_are_those_of_the_hosts_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# nobody\n10.0.0.2\tdeeplearning-worker2 two # three\n\n::1 localhost\n")
    assert local_host_names(str(file)) == {"deeplearning-worker2", "two", "localhost"}
    assert local_host_names(str(tmp_path / "none")) == set()
