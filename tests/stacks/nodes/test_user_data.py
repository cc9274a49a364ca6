"""Run the user data in bash, with stand-ins for the commands that use the network."""

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from bootstrap import contract
from bootstrap.config import NodeConfig
from stacks.nodes import user_data

INSTANCE = "i-0123456789abcdef0"
SETTINGS = NodeConfig(
    cluster_name="deeplearning",
    region="eu-west-1",
    node_type="worker",
    group="deeplearning-worker",
    stack_id="stack",
    signal_resource="WorkersASG",
    fails_deploy=True,
    min_nodes=None,
    master_trains=True,
    gpu_count=1,
    worker_gpu_count=1,
    efa_interfaces=0,
    address=None,
    address_allocation=None,
    table="table",
    networks="10.0.0.0/16",
    log_group="logs",
    bucket="bucket",
    master_role_id="AROAMASTER",
    worker_role_id="AROAWORKER",
    mxnet_environment=None,
    shared_storage=None,
    shared_storage_resource=None,
    setup=None,
    setup_sha256=None,
    setup_timeout_s=None,
    default_user="ubuntu",
    bootstrap_timeout_s=1200,
)
URL = "s3://bucket/abc.zip"

SCRIPT = user_data.body(SETTINGS, user_data.BundleSource(url=URL, sha256="0" * 64))
AGENT = "import os, sys; open(os.environ['NODE'] + '/agent.log', 'a').write(' '.join(sys.argv[1:]))"

CURL = f"""#!/bin/bash
case "$*" in *api/token*) echo -n token;; *"X-aws-ec2-metadata-token: token"*) echo -n {INSTANCE};; *) exit 22;; esac
"""
AWS = """#!/bin/bash
echo "$AWS_DEFAULT_REGION $*" >> "$NODE/aws.log"
[[ $1 == cloudformation && -e $NODE/too-late ]] && { echo "resource cannot be signaled" >&2; exit 254; }
[[ $1 == cloudformation && -e $NODE/no-signal ]] && { rm "$NODE/no-signal"; exit 1; }
[[ $1 == cloudformation || $1 == autoscaling ]] && exit 0
[[ -e $NODE/no-s3 ]] && exit 1
[[ -e $NODE/s3-comes-later ]] && { rm "$NODE/s3-comes-later"; exit 1; }
cp "$NODE/bundle.zip" "${@: -1}"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    root: Path
    hash: str
    """Hash of the bundle that the launch template means."""

    @property
    def config(self) -> Path:
        return self.root / contract.NODE_CONFIG_FILE.lstrip("/")

    @property
    def current(self) -> Path:
        return self.root / contract.CURRENT_RELEASE_LINK.lstrip("/")

    def boot(
        self, settings: NodeConfig = SETTINGS, *, path: str = os.environ["PATH"]
    ) -> subprocess.CompletedProcess[str]:
        script = f"{user_data.SHEBANG}\n{user_data.body(settings, user_data.BundleSource(url=URL, sha256=self.hash))}"
        for absolute in ("/opt/deeplearning", "/etc/deeplearning", "/opt/pytorch"):
            script = script.replace(absolute, f"{self.root}{absolute}")
        return subprocess.run(
            ["bash", "-c", script],
            env={"PATH": f"{self.root}/bin:{path}", "NODE": str(self.root)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def calls(self) -> list[str]:
        return (self.root / "aws.log").read_text().splitlines()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in (("curl", CURL), ("aws", AWS), ("sleep", "#!/bin/true\n")):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    return Node(root=tmp_path, hash=make_bundle(tmp_path, AGENT))


def make_bundle(directory: Path, agent: str) -> str:
    with zipfile.ZipFile(directory / "bundle.zip", "w") as archive:
        archive.writestr("bootstrap/__main__.py", agent)
    return hashlib.sha256((directory / "bundle.zip").read_bytes()).hexdigest()


def test_node_gets_its_configuration_its_release_and_its_agent(node: Node) -> None:
    result = node.boot()
    assert result.returncode == 0, result.stderr
    assert json.loads(node.config.read_text()) == {
        "version": 1,
        "cluster_name": "deeplearning",
        "region": "eu-west-1",
        "node_type": "worker",
        "group": "deeplearning-worker",
        "stack_id": "stack",
        "signal_resource": "WorkersASG",
        "fails_deploy": True,
        "min_nodes": None,
        "master_trains": True,
        "gpu_count": 1,
        "worker_gpu_count": 1,
        "efa_interfaces": 0,
        "address": None,
        "address_allocation": None,
        "table": "table",
        "networks": "10.0.0.0/16",
        "log_group": "logs",
        "bucket": "bucket",
        "master_role_id": "AROAMASTER",
        "worker_role_id": "AROAWORKER",
        "mxnet_environment": None,
        "shared_storage": None,
        "shared_storage_resource": None,
        "setup": None,
        "setup_sha256": None,
        "setup_timeout_s": None,
        "default_user": "ubuntu",
        "bootstrap_timeout_s": 1200,
    }
    assert node.config.stat().st_mode & 0o777 == 0o644
    assert node.current.resolve() == node.root / "opt/deeplearning/releases" / node.hash
    assert (node.root / "agent.log").read_text() == "install"
    assert [call.split()[:3] for call in node.calls()] == [["eu-west-1", "s3", "cp"]]


def test_aws_command_line_may_be_pytorchs(node: Node) -> None:
    of_pytorch = node.root / "opt/pytorch/bin"
    of_pytorch.mkdir(parents=True)
    # It is found last, so that nothing else of that environment replaces the system's programs.
    (of_pytorch / "python3").write_text("#!/bin/false\n")
    (of_pytorch / "python3").chmod(0o755)
    (node.root / "bin/aws").rename(of_pytorch / "aws")
    # Exclude this environment's own.
    result = node.boot(path="/usr/bin:/bin")
    assert result.returncode == 0, result.stderr
    assert (node.root / "agent.log").read_text() == "install"


def test_nothing_is_left_behind_and_a_second_run_changes_nothing(node: Node) -> None:
    assert (node.boot().returncode, node.boot().returncode) == (0, 0)
    assert [p.name for p in (node.root / "opt/deeplearning/releases").iterdir()] == [node.hash]
    assert sorted(p.name for p in (node.root / "opt/deeplearning").iterdir()) == ["current", "releases"]
    assert [p.name for p in node.current.iterdir() if p.name != "__pycache__"] == ["bootstrap"]


def test_user_data_waits_for_a_route_to_the_bundle_and_logs_it(node: Node) -> None:
    (node.root / "s3-comes-later").touch()
    result = node.boot()
    assert result.returncode == 0
    assert "waiting for s3://bucket/abc.zip" in result.stderr
    assert len(node.calls()) == 2


def test_user_data_fails_when_the_bundle_is_unreachable(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_data, "FETCH_TIMEOUT_S", 0)
    (node.root / "no-s3").touch()
    result = node.boot()
    assert result.returncode != 0
    assert node.calls()[-1] == (
        "eu-west-1 cloudformation signal-resource --stack-name stack --status FAILURE "
        f"--logical-resource-id WorkersASG --unique-id {INSTANCE} user data: fetch the node bundle"
    )
    assert not node.current.exists()


def test_bundle_with_another_hash_is_not_installed(node: Node) -> None:
    make_bundle(node.root, "print('something else')")
    assert node.boot().returncode != 0
    assert node.calls()[-1].endswith(f"--unique-id {INSTANCE} user data: verify the node bundle")
    assert not node.current.exists()


def test_failure_signal_is_sent_again_after_a_failed_call(node: Node) -> None:
    (node.root / "no-signal").touch()
    make_bundle(node.root, "")
    assert node.boot().returncode != 0
    assert [call.split()[1] for call in node.calls()] == ["s3", "cloudformation", "cloudformation"]


def test_failed_install_of_the_agent_is_signaled(node: Node) -> None:
    hash_of_bundle = make_bundle(node.root, "raise SystemExit(3)")
    result = Node(root=node.root, hash=hash_of_bundle).boot()
    assert result.returncode == 3
    assert node.calls()[-1].endswith(f"--unique-id {INSTANCE} user data: install the agent")


REPLACE_ME = (
    f"eu-west-1 autoscaling set-instance-health --instance-id {INSTANCE} "
    "--health-status Unhealthy --no-should-respect-grace-period"
)


def test_optional_node_requests_replacement_without_failure_signal(node: Node) -> None:
    make_bundle(node.root, "")
    assert node.boot(dataclasses.replace(SETTINGS, fails_deploy=False)).returncode != 0
    assert [call.split()[1] for call in node.calls()] == ["s3", "autoscaling"]
    assert node.calls()[-1] == REPLACE_ME


def test_failed_replacement_requests_another_after_a_late_signal(node: Node) -> None:
    (node.root / "too-late").touch()
    make_bundle(node.root, "")
    assert node.boot().returncode != 0
    assert [call.split()[1] for call in node.calls()] == ["s3", "cloudformation", "autoscaling"]
    assert node.calls()[-1] == REPLACE_ME


def test_silent_metadata_service_is_signaled(node: Node) -> None:
    (node.root / "bin/curl").write_text("#!/bin/sh\nexit 28\n")
    assert node.boot().returncode == 28
    assert "read instance metadata" in node.calls()[-1]


def test_every_step_name_fits_into_the_signal() -> None:
    start, ask, *steps = re.findall(r"step='([^']*)'", SCRIPT)
    # The first two run before the instance's id is known.
    reasons = [f" user data: {start}", f" user data: {ask}", *(f"{INSTANCE} user data: {s}" for s in steps)]
    assert len(reasons) == 7
    assert max(map(len, reasons)) <= contract.SIGNAL_ID_LENGTH


def test_user_data_is_short_enough_for_ec2() -> None:
    assert len(SCRIPT) < 4096
