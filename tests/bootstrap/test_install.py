"""Test the installation of a release, and of the services that settings add."""

import json
import os
import stat
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from bootstrap.contract import NodeType
from bootstrap.errors import BootstrapError, CommandError
from bootstrap.files.paths import under_root
from bootstrap.install import install
from tests.bootstrap.file_state import file_state
from tests.bootstrap.simulated_node import config_values

USER = config_values()["default_user"]
SERVICE = "deeplearning-agent.service"


@dataclass
class RecordedSystem:
    calls: list[str] = field(default_factory=list)
    broken: bool = False

    def reload_units(self) -> None:
        self._note("daemon-reload")

    def enable(self, unit: str) -> None:
        self._note(f"enable {unit}")

    def restart(self, unit: str) -> None:
        self._note(f"restart {unit}")

    def enable_linger(self, user: str) -> None:
        self._note(f"linger {user}")

    def _note(self, call: str) -> None:
        if self.broken:
            raise CommandError("systemctl is broken")
        self.calls.append(call)


def release(root: Path, name: str) -> Path:
    directory = root / "opt/deeplearning/releases" / name
    (directory / "bootstrap").mkdir(parents=True)
    return directory


TAKE_OVER = ["daemon-reload", f"enable {SERVICE}", f"restart {SERVICE}"]


def test_release_is_installed_and_its_agent_started(tmp_path: Path) -> None:
    system = RecordedSystem()
    one = release(tmp_path, "one")
    install(one, root=tmp_path, system=system)
    assert system.calls == TAKE_OVER
    assert under_root(tmp_path, "/opt/deeplearning/current").readlink() == one
    assert under_root(tmp_path, "/opt/deeplearning/trainer").readlink() == Path("/opt/deeplearning/current/trainer")
    launch = under_root(tmp_path, "/usr/local/bin/launch")
    python = "/usr/bin/python3 -I -S -X utf8"
    assert launch.read_text() == f'#!/bin/sh\nexec {python} /opt/deeplearning/current/launcher/__main__.py "$@"\n'
    assert stat.S_IMODE(launch.stat().st_mode) == 0o755
    unit = under_root(tmp_path, f"/etc/systemd/system/{SERVICE}").read_text()
    assert "Description=deeplearning-cdk agent (release one)\n" in unit
    assert "ExecStart=/usr/bin/python3 /opt/deeplearning/current/bootstrap run\n" in unit
    assert "Restart=always\n" in unit
    assert "StartLimitIntervalSec=0\n" in unit.partition("[Service]")[0]


@pytest.mark.parametrize("file", ["launcher/runner/main.py", "trainer/torch_backend/backend.py"])
def test_bytecode_of_installed_modules_is_readable_by_users(tmp_path: Path, file: str) -> None:
    one = release(tmp_path, "one")
    module = one / file
    module.parent.mkdir(parents=True)
    module.write_text("PORTS = 1\n")
    install(one, root=tmp_path, system=RecordedSystem())
    compiled = Path(cache_from_source(str(module)))
    assert compiled.stat().st_mode & stat.S_IROTH
    assert compiled.parent.stat().st_mode & stat.S_IXOTH


DURABLE = "deeplearning-durable.service"


@pytest.mark.parametrize(
    ("node_type", "calls"),
    [("master", [f"linger {USER}", "daemon-reload", f"enable {DURABLE}", f"restart {DURABLE}"]), ("worker", [])],
)
def test_user_units_outlive_sessions_on_the_master(tmp_path: Path, node_type: NodeType, calls: list[str]) -> None:
    config = under_root(tmp_path, "/etc/deeplearning/node.json")
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps(config_values(node_type)))
    system = RecordedSystem()
    install(release(tmp_path, "one"), root=tmp_path, system=system)
    assert system.calls == [*TAKE_OVER, *calls]
    unit = under_root(tmp_path, f"/etc/systemd/system/{DURABLE}")
    assert unit.exists() is bool(calls)
    if calls:
        assert f"User={USER}\n" in unit.read_text()


def put_on_ebs(root: Path, *, model: str = "Amazon Elastic Block Store") -> Path:
    """Make PyTorch's environment, on a partition of a disk of this model; return its site-packages."""
    libraries = root / "opt/pytorch/lib/python3.12/site-packages"
    libraries.mkdir(parents=True)
    number = libraries.stat().st_dev
    partition = root / "sys/devices/nvme0n1/nvme0n1p1"
    partition.mkdir(parents=True)
    (partition.parent / "device").mkdir()
    (partition.parent / "device/model").write_text(f"{model}   \n")
    link = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(partition)
    return libraries


def test_libraries_on_ebs_are_read_ahead_and_others_are_not(tmp_path: Path) -> None:
    for name, model, calls in (
        ("ebs", "Amazon Elastic Block Store", ["daemon-reload", "enable deeplearning-read-ahead.service"]),
        ("local", "Amazon EC2 NVMe Instance Storage", []),
    ):
        root, system = tmp_path / name, RecordedSystem()
        root.mkdir()
        put_on_ebs(root, model=model)
        install(release(root, "one"), root=root, system=system)
        assert system.calls == [*TAKE_OVER, *calls]
    unit = (tmp_path / "ebs/etc/systemd/system/deeplearning-read-ahead.service").read_text()
    assert "IOSchedulingClass=idle\n" in unit
    assert "Type=oneshot" not in unit  # for which systemctl enable --now would wait


def test_second_install_leaves_the_running_agent_alone(tmp_path: Path) -> None:
    one = release(tmp_path, "one")
    install(one, root=tmp_path, system=RecordedSystem())
    unit = under_root(tmp_path, f"/etc/systemd/system/{SERVICE}")
    before = file_state(unit)
    system = RecordedSystem()
    install(one, root=tmp_path, system=system)
    assert system.calls == [f"enable {SERVICE}"]
    assert file_state(unit) == before


def test_another_release_takes_over(tmp_path: Path) -> None:
    install(release(tmp_path, "one"), root=tmp_path, system=RecordedSystem())
    system = RecordedSystem()
    two = release(tmp_path, "two")
    install(two, root=tmp_path, system=system)
    assert system.calls == TAKE_OVER
    assert under_root(tmp_path, "/opt/deeplearning/current").readlink() == two


def test_failed_restart_is_retried(tmp_path: Path) -> None:
    one = release(tmp_path, "one")
    with pytest.raises(CommandError, match="systemctl is broken"):
        install(one, root=tmp_path, system=RecordedSystem(broken=True))
    system = RecordedSystem()
    install(one, root=tmp_path, system=system)
    assert system.calls[:3] == TAKE_OVER


def test_directory_without_bootstrap_is_refused_as_a_release(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match="release must hold bootstrap/, got"):
        install(tmp_path, root=tmp_path, system=RecordedSystem())


def test_install_refuses_another_user_than_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(BootstrapError, match="install must run as root, got user id 1000"):
        install(release(tmp_path, "one"), root=Path("/"), system=RecordedSystem())


def test_node_with_the_setting_frameworks_gets_the_mxnet_service(tmp_path: Path) -> None:
    config = under_root(tmp_path, "/etc/deeplearning/node.json")
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps(config_values("worker") | {"mxnet_environment": "horovod"}))
    system = RecordedSystem()
    install(release(tmp_path, "one"), root=tmp_path, system=system)
    assert system.calls == [*TAKE_OVER, "daemon-reload", "enable deeplearning-mxnet-environment.service"]
    unit = under_root(tmp_path, "/etc/systemd/system/deeplearning-mxnet-environment.service").read_text()
    assert "ExecStart=/usr/bin/python3 /opt/deeplearning/current/bootstrap mxnet-environment\n" in unit


def test_node_with_a_setup_gets_its_service(tmp_path: Path) -> None:
    config = under_root(tmp_path, "/etc/deeplearning/node.json")
    config.parent.mkdir(parents=True)
    setup = {"setup": "s3://assets/x.zip", "setup_sha256": "0" * 64, "setup_timeout_s": 900}
    config.write_text(json.dumps(config_values("worker") | setup))
    system = RecordedSystem()
    install(release(tmp_path, "one"), root=tmp_path, system=system)
    assert system.calls == [*TAKE_OVER, "daemon-reload", "enable deeplearning-setup.service"]
    unit = under_root(tmp_path, "/etc/systemd/system/deeplearning-setup.service").read_text()
    assert "ExecStart=/usr/bin/python3 /opt/deeplearning/current/bootstrap setup\n" in unit


def test_node_without_the_setting_frameworks_gets_no_mxnet_service(tmp_path: Path) -> None:
    config = under_root(tmp_path, "/etc/deeplearning/node.json")
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps(config_values("worker")))
    system = RecordedSystem()
    install(release(tmp_path, "one"), root=tmp_path, system=system)
    assert system.calls == TAKE_OVER
    assert not under_root(tmp_path, "/etc/systemd/system/deeplearning-mxnet-environment.service").exists()


def test_new_release_restarts_the_service_that_mounts(tmp_path: Path) -> None:
    config = under_root(tmp_path, "/etc/deeplearning/node.json")
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps(config_values("worker") | {"shared_storage": "efs:fs-0123456789abcdef0"}))
    shared = "deeplearning-shared-storage.service"
    for name, calls in (
        ("one", ["daemon-reload", f"enable {shared}", f"restart {shared}"]),
        ("one", [f"enable {shared}"]),
        ("two", ["daemon-reload", f"enable {shared}", f"restart {shared}"]),
    ):
        system = RecordedSystem()
        made = under_root(tmp_path, f"/opt/deeplearning/releases/{name}")
        install(made if made.exists() else release(tmp_path, name), root=tmp_path, system=system)
        assert system.calls[-len(calls) :] == calls
    unit = under_root(tmp_path, f"/etc/systemd/system/{shared}").read_text()
    assert "OOMScoreAdjust=-900\n" in unit
    assert "ExecStopPost=-/bin/sh -c 'echo stopped >/run/deeplearning/shared-state'\n" in unit
