"""Test that nothing is left on the machine when a local AWS ends, however it ends."""

import signal
import subprocess
import sys

import pytest

from local.run.local_aws import runs_dir
from tests.leak_check import REPOSITORY, Snapshot

TIMEOUT_S = 300.0
# Launch an instance, so that there is a node, then print the line that tells the test it is running.
ONE_NODE = """
import boto3, os, pathlib, sys, time
ec2 = boto3.client("ec2")
subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
image = ec2.describe_images()["Images"][0]["ImageId"]
made = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, SubnetId=subnet, InstanceType="c5.large")
name = made["Instances"][0]["InstanceId"]
disk = pathlib.Path(os.environ["LOCAL_AWS_DIR"], "nodes", name, "disk/upper")
booted = disk / "var/lib/cloud/instances" / name / "boot-finished"
deadline = time.monotonic() + 240
while not booted.exists():
    assert time.monotonic() < deadline, "waited 240 s for the node"
    time.sleep(0.1)
pathlib.Path("file-in-the-checkout").write_text("x")
print("node is up", flush=True)
if "hold" in sys.argv:
    time.sleep(1000)
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "local", "run", "--", sys.executable, "-c", ONE_NODE, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    while line := process.stdout.readline():
        if "node is up" in line:
            return process
    raise AssertionError(f"the local AWS ended with {process.wait()} before its node was up")


@pytest.mark.usefixtures("clean_machine")
def test_nothing_is_left_after_a_run() -> None:
    process = start()
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.usefixtures("clean_machine")
def test_nothing_is_left_after_a_signal(signum: signal.Signals) -> None:
    process = start("hold")
    process.send_signal(signum)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == (-9 if signum is signal.SIGKILL else 128 + signum)


def test_run_works_beside_another_and_removes_a_dead_one(clean_machine: Snapshot) -> None:
    lost = runs_dir() / "lost"
    lost.mkdir()
    (lost / "owner").write_text("1 0")
    first, second = start("hold"), start()
    second.communicate(timeout=TIMEOUT_S)
    assert second.returncode == 0
    assert not lost.exists()
    assert first.poll() is None
    first.kill()
    first.communicate(timeout=TIMEOUT_S)


def test_exit_code_of_the_command_is_returned() -> None:
    command = [sys.executable, "-m", "local", "run", "--", sys.executable, "-c", "raise SystemExit(7)"]
    assert subprocess.run(command, cwd=REPOSITORY, check=False, timeout=TIMEOUT_S).returncode == 7
