"""Check what stays on a worker's disk for an image: the software and the setup's marker, and nothing of the node."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bootstrap import contract
from bootstrap.atomic_file import replace_block
from bootstrap.contract import AGENT_SERVICE, SETUP_MARKER_FILE, SHARED_DIR
from bootstrap.errors import CommandError, SetupError
from bootstrap.files.paths import under_root
from bootstrap.setup.prepare_image import SERVICES, WRITERS, prepare_image

SHA256 = "1" * 64
OURS = "10.0.1.5 deeplearning-worker2\n"
GONE = (
    "/etc/deeplearning/node.json",
    "/etc/deeplearning/authorized_keys/ubuntu",
    "/etc/deeplearning/team_keys/ubuntu",
    "/etc/profile.d/deeplearning.sh",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssh/ssh_host_ed25519_key.pub",
    "/etc/ssh/sshd_config.d/60-deeplearning.conf",
    f"/etc/systemd/system/{AGENT_SERVICE}",
    "/home/ubuntu/.ssh/authorized_keys",
    "/home/ubuntu/.bash_history",
    "/home/ubuntu/.cache/deeplearning/push/.src.owner",
    "/home/ubuntu/.local/state/deeplearning/jobs/1/job.json",
    "/home/ubuntu/.local/state/deeplearning/sync/0123.json",
    "/home/ubuntu/.local/state/deeplearning/sync/0123.lock",
    "/home/ubuntu/src/train.py",
    "/opt/deeplearning/releases/0123/bootstrap/main.py",
    "/opt/deeplearning/workers",
    "/root/.aws/credentials",
    "/root/.python_history",
    "/root/.ssh/authorized_keys",
    "/tmp/notes",
    "/swapfile",
    "/var/lib/docker/overlay2/1/diff/file",
    "/var/spool/cron/atjobs/a0001",
    "/var/spool/cron/crontabs/ubuntu",
    "/var/lib/amazon/ssm/i-1/registration",
    "/var/lib/cloud/instances/i-1/user-data.txt",
    f"/var/lib/deeplearning/setup/{SHA256}/requirements.txt",
    "/var/lib/deeplearning/signaled",
    "/var/lib/systemd/random-seed",
    "/var/log/auth.log",
    "/var/log/deeplearning/agent.log",
    "/var/log/journal/5f/system.journal",
    "/var/tmp/cache-1000/data",
)
KEPT = {
    "/etc/ssh/sshd_config": "PermitRootLogin no\n",
    "/etc/systemd/system/vendor.service": "[Service]\n",
    "/opt/deeplearning/mxnet/0123/bin/python": "mxnet",
    "/opt/pytorch/bin/python": "python",
    "/usr/local/bin/ffmpeg": "installed by the setup",
}

OTHER_USER = 4242
PREPARE_WITH_MOUNTS = f"""
import json, os, subprocess, sys
from pathlib import Path
from unittest.mock import Mock
from bootstrap.setup.prepare_image import prepare_image

given = json.load(sys.stdin)
root = Path(given["root"])
for mount in given["mounts"]:
    (root / mount[1:]).mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "shared", root / mount[1:]], check=True)
paths = {{file: root / file[1:] for file in given["files"]}}
for path in paths.values():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("of other machines")
    os.chown(path, {OTHER_USER}, {OTHER_USER})
system = Mock(disable_swap=list)
prepare_image(root=root, sha256=given["sha256"], system=system, cgroup="")
print(json.dumps({{file: [path.read_text(), path.stat().st_uid] for file, path in paths.items()}}))
"""
"""Program that mounts what other machines share, in a mount namespace of its own, and prepares the disk."""


@dataclass
class Node:
    """A worker's disk, and the commands that were run there."""

    root: Path
    ran: list[str] = field(default_factory=list)
    swap_fails: bool = False
    at_sync: dict[str, str] = field(default_factory=dict)
    """What the files have when the disk is written out for the first time."""

    def write(self, path: str, text: str = "of this node") -> Path:
        file = under_root(self.root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def read(self, path: str) -> str:
        return under_root(self.root, path).read_text()

    def files(self) -> set[str]:
        return {f"/{path.relative_to(self.root)}" for path in self.root.rglob("*") if not path.is_dir()}

    def prepare(self, sha256: str = SHA256) -> None:
        cgroup = "0::/user.slice/user-1000.slice/session-7.scope\n"
        prepare_image(root=self.root, sha256=sha256, system=self, cgroup=cgroup)

    def disable(self, unit: str) -> None:
        self.ran.append(f"disable {unit}")

    def stop(self, units: Sequence[str], *, except_unit: str | None) -> None:
        assert tuple(units) == WRITERS
        self.ran.append(f"stop writers but {except_unit}")

    def disable_swap(self) -> list[str]:
        if self.swap_fails:
            raise CommandError("swapoff --all exited 255: no memory")
        return ["/swapfile"]

    def unmount(self, directory: str) -> None:
        self.ran.append(f"unmount {directory}")

    def end_other_sessions(self, own: str | None) -> None:
        # A shell writes its history when it ends, so this must come before homes are emptied.
        self.write("/home/ubuntu/.bash_history")
        self.ran.append(f"end sessions but {own}")

    def relinquish_journal(self) -> None:
        self.ran.append("stop keeping journal")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(root=tmp_path)
    for path in GONE:
        made.write(path)
    for path, text in KEPT.items():
        made.write(path, text)
    made.write(SETUP_MARKER_FILE, f"{SHA256} worker\n")
    made.write("/etc/hosts", replace_block("127.0.0.1 localhost\n", OURS))
    made.write("/etc/machine-id", "5f0a\n")
    made.write("/etc/skel/.profile", "umask 022\n")
    return made


def test_only_software_and_the_marker_of_the_setup_stay(node: Node) -> None:
    node.prepare()
    new = {"/etc/hosts", "/etc/machine-id", "/etc/skel/.profile", "/home/ubuntu/.profile", "/root/.profile"}
    assert node.files() == {*KEPT, *new, SETUP_MARKER_FILE}
    assert {path: node.read(path) for path in KEPT} == KEPT
    assert node.read(SETUP_MARKER_FILE) == f"{SHA256} worker\n"
    # Cron and at do not make their directories either.
    assert under_root(node.root, "/var/spool/cron/crontabs").is_dir()
    assert (node.read("/etc/hosts"), node.read("/etc/machine-id")) == ("127.0.0.1 localhost\n", "")
    # Programs that log do not make their own directories.
    assert under_root(node.root, "/var/log/deeplearning").is_dir()
    assert node.ran[0] == f"unmount {SHARED_DIR}"
    assert node.ran[-3:] == ["end sessions but 7", "stop writers but user@1000.service", "stop keeping journal"]
    assert f"disable {AGENT_SERVICE}" in node.ran


def test_second_run_completes_an_interrupted_one(node: Node) -> None:
    under_root(node.root, "/etc/ssh/ssh_host_ed25519_key").unlink()
    node.prepare()
    files = node.files()
    node.prepare()
    assert node.files() == files


def test_marker_of_an_older_release_gets_the_node_type(node: Node) -> None:
    node.write(SETUP_MARKER_FILE, f"{SHA256}\n")
    node.prepare()
    assert node.read(SETUP_MARKER_FILE) == f"{SHA256} worker\n"


def test_each_service_of_the_contract_is_stopped_and_removed() -> None:
    assert set(SERVICES) == {value for name, value in vars(contract).items() if name.endswith("_SERVICE")}


def test_disk_is_not_prepared_while_swap_is_on(node: Node) -> None:
    before, node.swap_fails = node.files(), True
    with pytest.raises(CommandError, match="swapoff"):
        node.prepare()
    assert node.files() >= before


def test_keys_are_overwritten_on_disk_before_removal(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = (
        *("/etc/deeplearning/node.json", "/etc/ssh/ssh_host_ed25519_key", "/home/ubuntu/.ssh/authorized_keys"),
        *("/home/ubuntu/.bash_history", "/root/.aws/credentials", "/var/lib/amazon/ssm/i-1/registration"),
    )
    linked = node.write("/usr/local/lib/config")
    under_root(node.root, "/home/ubuntu/.ssh/config").hardlink_to(linked)

    def sync() -> None:
        node.at_sync = node.at_sync or {path: node.read(path) for path in secrets}

    monkeypatch.setattr("os.sync", sync)
    node.prepare()
    assert node.at_sync == dict.fromkeys(secrets, "\0" * len("of this node"))
    assert linked.read_text() == "of this node"


@pytest.mark.parametrize("found", ["2" * 64, f"{SHA256} master", None])
def test_disk_with_another_setup_is_not_prepared(node: Node, found: str | None) -> None:
    marker = under_root(node.root, SETUP_MARKER_FILE)
    marker.write_text(f"{found}\n") if found else marker.unlink()
    before = node.files()
    with pytest.raises(SetupError, match=f"^the setup on this disk must be {SHA256} worker, got {found or 'none'}$"):
        node.prepare()
    assert (node.files(), node.ran) == (before, [])


@pytest.mark.allow_subprocess
@pytest.mark.parametrize(
    ("mounts", "files"),
    [
        (["/home"], ["/home/alice/.netrc", "/home/alice/.bash_history", "/home/alice/.cache/huggingface/token"]),
        (
            ["/home/alice", "/home/bob/.config", "/home/bob/data", "/opt/homes"],
            ["/home/alice/.netrc", "/home/bob/.config/gh/hosts.yml", "/home/bob/data/results", "/opt/homes/.netrc"],
        ),
        (["/var/log/shared", "/var/spool/cron"], ["/var/log/shared/1/run.log", "/var/spool/cron/root"]),
    ],
)
def test_files_of_other_file_systems_keep_content_and_owner(node: Node, mounts: list[str], files: list[str]) -> None:
    node.write("/etc/skel/.config/gh/hosts.yml", "from the skeleton")
    home = under_root(node.root, "/home/linked")
    home.parent.mkdir(exist_ok=True)
    home.symlink_to("../opt/homes")
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", PREPARE_WITH_MOUNTS],
        input=json.dumps({"root": str(node.root), "mounts": mounts, "files": files, "sha256": SHA256}),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(contract.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {file: ["of other machines", OTHER_USER] for file in files}
