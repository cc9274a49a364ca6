"""Test that a durable training whose Capacity Block ends continues in the next one and ends with the same bits.

The test takes about ten minutes, mostly waiting for the blocks: `make soak` runs it.
"""

import json
import math
import re
import subprocess
from datetime import datetime, timedelta, timezone

import pytest

from local.blocks import buy_block
from local.faults.clients import client
from local.run.user import USER_SETTINGS, User, deploy_arguments
from tests.e2e.conftest import NODES, group_instances, stack_outputs
from tests.waiting import await_true

MASTER = "deeplearning-master"
BEFORE_END = timedelta(minutes=40)
"""Time before a block's end at which its nodes end."""
DEPLOY = timedelta(seconds=90)
"""Time that a deploy without nodes may take."""
IN_BLOCK = timedelta(minutes=4)
"""Time in the first block for the nodes to boot and train for a while."""
BOOT_S = 300.0
STEPS = 4000
SCRIPT = f"""\
import hashlib, os, signal, subprocess, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, place = dist.get_rank(), os.environ["CHECKPOINT"]
torch.manual_seed(7)
model = torch.nn.Linear(32, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
ends = []
signal.signal(signal.SIGTERM, lambda *_: ends.append(True))


def copy(*words):
    return subprocess.run(["aws", "s3", "cp", "--quiet", *words], check=False).returncode == 0


def save(step):
    torch.save({{"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}}, "/tmp/net.pt")
    assert copy("/tmp/net.pt", place)


saved = [None]
if rank == 0 and copy(place, "/tmp/net.pt"):
    saved = [torch.load("/tmp/net.pt", map_location="cpu")]
dist.broadcast_object_list(saved, src=0)
begin = 0
if saved[0] is not None:
    begin = saved[0]["step"]
    model.load_state_dict(saved[0]["model"])
    optimizer.load_state_dict(saved[0]["optimizer"])
if rank == 0:
    print("goes on at step", begin, flush=True)
# A first attempt is too slow for its block.
wait = 0.1 if begin == 0 and "SLOW" in os.environ else 0.0
for step in range(begin, {STEPS}):
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + rank)
    batch = torch.randn(16, 32, generator=generator)
    optimizer.zero_grad()
    (model(batch) - batch[:, :8]).square().mean().backward()
    for each in model.parameters():
        dist.all_reduce(each.grad)
    optimizer.step()
    time.sleep(wait)
    if rank == 0 and (ends or (wait and step % 100 == 99)):
        save(step + 1)
    if ends:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
if rank == 0:
    weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    print("weights", hashlib.sha256(weights).hexdigest(), flush=True)
"""


def now() -> datetime:
    return datetime.now(timezone.utc)


def buy(*, after: timedelta, usable: timedelta) -> tuple[str, datetime, datetime]:
    """Buy a block for all nodes; return its ID, its start and the time at which its nodes end."""
    # Schedules act at full minutes.
    minute = timedelta(minutes=1)
    starts = datetime.min.replace(tzinfo=timezone.utc)
    starts += math.ceil((now() + after - starts) / minute) * minute
    ends = starts + usable + BEFORE_END
    block = buy_block(USER_SETTINGS["instance_type"], count=NODES, starts=starts, ends=ends)
    return block, starts, starts + usable


def deploy(user: User, block: str) -> None:
    settings = ("-c", "purchase=capacity-block", "-c", f"capacity_reservation={block}")
    user.cdk(*deploy_arguments(nodes=NODES), *settings)


def members() -> set[str]:
    outputs = stack_outputs()
    groups = (outputs["MasterAutoScalingGroup"], outputs["WorkerAutoScalingGroup"])
    return {instance["InstanceId"] for group in groups for instance in group_instances(group)}


def states(instances: set[str]) -> set[str]:
    found = client("ec2").describe_instances(InstanceIds=sorted(instances))["Reservations"]
    return {instance["State"]["Name"] for reservation in found for instance in reservation["Instances"]}


def status(user: User) -> dict[str, object]:
    return dict(json.loads(user.output("dlcluster", "status", "--json")))


def await_nodes(user: User) -> None:
    await_true(lambda: status(user)["running_nodes"] == NODES, "all nodes", timeout_s=BOOT_S, every_s=2.0)


def logs(user: User, job: str) -> str:
    try:
        return user.ssh(MASTER, f"launch logs {job} 2>/dev/null || true")
    except subprocess.CalledProcessError:
        return ""


@pytest.mark.timeout(1200)
def test_a_durable_training_goes_on_in_the_next_block_with_the_same_bits(user: User) -> None:
    block, starts, goes = buy(after=DEPLOY, usable=IN_BLOCK)
    deploy(user, block)
    assert now() < starts, "the deploy took longer than the time before the block"
    assert members() == set()
    assert f"Capacity Block {block} starts in 0 h" in user.output("dlcluster", "status")

    await_true(lambda: len(members()) == NODES, "the block's start", timeout_s=DEPLOY.total_seconds() + 60)
    assert now() >= starts
    first = members()
    await_nodes(user)
    user.write_ssh_config()
    where = "s3://$DEEPLEARNING_BUCKET"
    user.ssh(MASTER, f"mkdir -p code && cat > code/train.py <<'END'\n{SCRIPT}END\n")
    options = f"--sync-dst-dir work --env CHECKPOINT:{where}/durable.pt --env SLOW:1"
    printed = user.ssh(MASTER, f"cd code && launch --durable {options} train.py 2>&1")
    job = printed.split()[-1]
    await_true(lambda: "goes on at step 0" in logs(user, job), "the training", timeout_s=60.0, every_s=1.0)

    left = (goes - now()).total_seconds()
    assert left > 0, "the nodes booted for longer than the block lasts"
    await_true(lambda: not members(), "the nodes' end before the block's", timeout_s=left + 120)
    assert now() >= goes
    await_true(lambda: states(first) == {"terminated"}, "the end of all nodes", timeout_s=120)

    block, starts, _ = buy(after=DEPLOY, usable=timedelta(hours=1))
    deploy(user, block)
    assert members() == set()
    await_true(lambda: len(members()) == NODES, "the next block's start", timeout_s=DEPLOY.total_seconds() + 60)
    await_nodes(user)
    assert not members() & first
    await_true(lambda: "weights" in logs(user, job), "the durable training's end", timeout_s=180.0, every_s=2.0)
    ended = json.loads(user.ssh(MASTER, f"launch status --json {job}"))
    assert (ended["state"], ended["attempt"], ended["exit_code"]) == ("SUCCEEDED", 2, 0)
    log = logs(user, job)
    [step] = re.findall(r"goes on at step (\d+)", log)
    assert 0 < int(step) < STEPS

    line = f"cd work && launch --env CHECKPOINT:{where}/undisturbed.pt train.py"
    undisturbed = user.ssh(MASTER, line)
    assert re.findall(r"goes on at step (\d+)", undisturbed) == ["0"]
    assert re.findall(r"weights (\w+)", log) == re.findall(r"weights (\w+)", undisturbed) != []
