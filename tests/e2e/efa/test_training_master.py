"""Test a master of a CPU type that trains with workers of a GPU type: it counts as worker1.

``make soak`` runs it. Neither type has EFA, as NCCL uses one network for all ranks.
"""

import re
import shlex
from collections.abc import Iterator

import pytest

from bootstrap.contract import MASTER, WORKER
from local.run.user import User
from tests.e2e.support.ec2_nodes import (
    expected_workers_seen,
    instance_of,
    instances_by_node_type,
    launch,
    workers_seen_on,
)
from tests.e2e.support.laptop import Laptop, new_laptop

CPU, GPU = "c5.large", "g4dn.xlarge"
HOSTS = ("worker1", "worker2", "worker3")
SHOW_RANK = "echo rank $RANK of $WORLD_SIZE on $DEEPLEARNING_INSTANCE_ID"


@pytest.fixture(scope="module")
def laptop(user: User, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    settings = {"instance_type": GPU, "master_instance_type": CPU, "master_trains": True, "worker_count": 2}
    made = new_laptop(user, tmp_path_factory.mktemp("training-master"), settings)
    made.run("cdk", "deploy")
    user.write_ssh_config()
    yield made
    made.run("cdk", "destroy", "--force")


def test_only_the_master_has_the_cpu_type(laptop: Laptop) -> None:
    instance_types = {
        kind: [node["InstanceType"] for node in nodes] for kind, nodes in instances_by_node_type().items()
    }
    assert instance_types == {MASTER: [CPU], WORKER: [GPU, GPU]}


def test_master_is_worker1_in_all_lists(laptop: Laptop) -> None:
    gpus = dict.fromkeys(HOSTS, 1) | {"master": 0, "worker1": 0}
    for host, own in gpus.items():
        assert workers_seen_on(laptop, host) == expected_workers_seen(*HOSTS, gpus=own)


def test_one_job_runs_on_all_nodes(laptop: Laptop) -> None:
    done = launch(laptop, shlex.quote(SHOW_RANK))
    assert (done.returncode, done.stderr) == (0, "")
    assert {*done.stdout.splitlines()} == {
        f"deeplearning-{host} [0] rank {rank} of 3 on {instance_of(rank + 1)}" for rank, host in enumerate(HOSTS)
    }


def test_master_trains_with_the_workers(laptop: Laptop) -> None:
    done = launch(laptop, "python /opt/deeplearning/trainer --kv-store dist_sync --num-epochs 2")
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert {*re.findall(r"rank (\d)/3 host=", printed)} == {"0", "1", "2"}, printed
