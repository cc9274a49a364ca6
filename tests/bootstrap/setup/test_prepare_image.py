"""What is left on a worker's disk for an image: the software and the setup's marker, and nothing of the node."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bootstrap.atomic_file import replace_block
from bootstrap.contract import AGENT_SERVICE, SETUP_MARKER, SHARED_DIR
from bootstrap.errors import SetupError
from bootstrap.files.paths import under_root
from bootstrap.setup.prepare_image import prepare_image, remove

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
    "/home/ubuntu/src/train.py",
    "/opt/deeplearning/releases/0123/bootstrap/main.py",
    "/opt/deeplearning/workers",
    "/root/.aws/credentials",
    "/root/.ssh/authorized_keys",
    "/tmp/notes",
    "/var/lib/amazon/ssm/i-1/registration",
    "/var/lib/cloud/instances/i-1/user-data.txt",
    f"/var/lib/deeplearning/setup/{SHA256}/requirements.txt",
    "/var/lib/deeplearning/signalled",
    "/var/lib/systemd/random-seed",
    "/var/log/auth.log",
    "/var/log/deeplearning/agent.log",
    "/var/log/journal/5f/system.journal",
    "/var/tmp/cache-1000/data",
)
KEPT = {
    "/etc/ssh/sshd_config": "PermitRootLogin no\n",
    "/etc/systemd/system/vendor.service": "[Service]\n",
    "/opt/deeplearning/engines/0123/bin/python": "engines",
    "/opt/pytorch/bin/python": "python",
    "/usr/local/bin/ffmpeg": "installed by the setup",
}


@dataclass
class Node:
    """A worker's disk, and the commands that were run there."""

    root: Path
    ran: list[str] = field(default_factory=list)

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
        prepare_image(root=self.root, sha256=sha256, services=self, cgroup=cgroup)

    def disable(self, unit: str) -> None:
        self.ran.append(f"disable {unit}")

    def unmount(self, directory: str) -> None:
        self.ran.append(f"unmount {directory}")

    def end_other_sessions(self, own: str | None) -> None:
        # A shell writes its history when it ends, so this must come before homes are emptied.
        self.write("/home/ubuntu/.bash_history")
        self.ran.append(f"end sessions but {own}")

    def stop_keeping_journal(self) -> None:
        self.ran.append("stop keeping journal")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(root=tmp_path)
    for path in GONE:
        made.write(path)
    for path, text in KEPT.items():
        made.write(path, text)
    made.write(SETUP_MARKER, f"{SHA256}\n")
    made.write("/etc/hosts", replace_block("127.0.0.1 localhost\n", OURS))
    made.write("/etc/machine-id", "5f0a\n")
    made.write("/etc/skel/.profile", "umask 022\n")
    return made


def test_only_software_and_the_marker_of_the_setup_stay(node: Node) -> None:
    node.prepare()
    new = {"/etc/hosts", "/etc/machine-id", "/etc/skel/.profile", "/home/ubuntu/.profile", "/root/.profile"}
    assert node.files() == {*KEPT, *new, SETUP_MARKER}
    assert {path: node.read(path) for path in KEPT} == KEPT
    assert node.read(SETUP_MARKER) == f"{SHA256}\n"
    assert (node.read("/etc/hosts"), node.read("/etc/machine-id")) == ("127.0.0.1 localhost\n", "")
    # Programs that log do not make their own directories.
    assert under_root(node.root, "/var/log/deeplearning").is_dir()
    assert (node.ran[0], node.ran[-2:]) == (f"unmount {SHARED_DIR}", ["end sessions but 7", "stop keeping journal"])
    assert f"disable {AGENT_SERVICE}" in node.ran


def test_a_second_run_completes_one_that_was_cut_off(node: Node) -> None:
    under_root(node.root, "/etc/ssh/ssh_host_ed25519_key").unlink()
    node.prepare()
    files = node.files()
    node.prepare()
    assert node.files() == files


@pytest.mark.parametrize("found", ["2" * 64, None])
def test_a_disk_without_that_setup_is_left_alone(node: Node, found: str | None) -> None:
    marker = under_root(node.root, SETUP_MARKER)
    marker.write_text(f"{found}\n") if found else marker.unlink()
    before = node.files()
    with pytest.raises(SetupError, match=f"^the setup on this disk must be {SHA256}, got {found or 'none'}$"):
        node.prepare()
    assert (node.files(), node.ran) == (before, [])


def test_nothing_of_a_mounted_file_system_is_removed(node: Node) -> None:
    data = node.write("/home/ubuntu/shared/data")
    remove(data.parent, disk=data.parent.stat().st_dev + 1)
    assert data.exists()
