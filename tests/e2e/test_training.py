"""The main job: training that is really distributed."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import NODES, SHARED, Cluster, aliases

MASTER = "deeplearning-master"
EXAMPLES = Path(__file__).parents[2] / "examples"
# The third article's line; on CPU nodes seq prints nothing and --gpus is left with no value.
ARTICLE = (
    "cd && launch -n $DEEPLEARNING_WORKERS_COUNT -H $DEEPLEARNING_WORKERS_PATH python /opt/deeplearning/trainer"
    " --gpus $(seq -s , 0 1 $(($DEEPLEARNING_WORKER_GPU_COUNT - 1))) --network lenet --kv-store dist_sync"
)


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> str:
    return cluster.user.ssh(MASTER, ARTICLE + " 2>&1")


def test_every_rank_ran_on_an_instance_of_its_own(cluster: Cluster, job: str) -> None:
    found = dict(re.findall(rf"rank (\d)/{NODES} host=\S+ instance=(i-\w+)", job))
    assert set(found) == {str(rank) for rank in range(NODES)}
    assert set(found.values()) == set(cluster.addresses)
    assert found["0"] == cluster.master["InstanceId"]


def test_weights_are_bit_equal_on_all_ranks_after_every_epoch(job: str) -> None:
    digests: dict[str, dict[str, str]] = {}
    for rank, epoch, digest in re.findall(r"rank (\d)/\d Epoch\[(\d+)\] weights=sha256:(\w+)", job):
        digests.setdefault(epoch, {})[rank] = digest
    assert len(digests) > 1
    for by_rank in digests.values():
        assert len(by_rank) == NODES
        assert len(set(by_rank.values())) == 1
    assert len({by_rank["0"] for by_rank in digests.values()}) == len(digests)


def test_held_out_digits_are_recognized(job: str) -> None:
    final = re.findall(r"Validation-accuracy=([\d.]+) images/s=([\d.]+)", job)
    assert len(final) == 1
    assert float(final[0][0]) >= 0.97
    assert float(final[0][1]) > 0


def test_the_checkpoint_is_written_on_the_master(cluster: Cluster, job: str) -> None:
    path = re.findall(r"checkpoint=(\S+)", job)[0]
    assert int(cluster.on(MASTER, f"cd && stat -c %s {path}")) > 100_000


def test_a_script_for_torchrun_runs_unmodified(cluster: Cluster) -> None:
    copy = ["rsync", "-a", "-e", " ".join(cluster.user.ssh_command("", options=SHARED)[:-1]), f"{EXAMPLES}/"]
    cluster.user.run(*copy, f"{MASTER}:examples/")
    said = cluster.on(MASTER, "cd examples && launch --sync-dst-dir examples python torchrun_ddp.py 2>&1")
    found = dict(re.findall(rf"worker (\d)/{NODES} accuracy=(\S+)", said))
    assert set(found) == {str(rank) for rank in range(NODES)}, said
    # All have the same weights.
    assert len(set(found.values())) == 1, said
    assert float(found["0"]) >= 0.9, said


@pytest.mark.parametrize("code", [1, 3])
def test_fails_when_one_rank_fails_with_its_exit_code(cluster: Cluster, code: int) -> None:
    rank = f"import os, time; os.environ['RANK'] == '2' and os._exit({code}); time.sleep(60)"
    with pytest.raises(subprocess.CalledProcessError) as failure:
        cluster.on(MASTER, f'launch python3 -c "{rank}"')
    assert failure.value.returncode == code
    for alias in aliases():
        # pgrep -f would find the shell that carries its own pattern, but for the brackets.
        assert cluster.on(alias, "pgrep -fc '[t]ime.sleep' || true") == "0"


def test_no_rank_reaches_the_users_ssh_agent(cluster: Cluster) -> None:
    printed = cluster.user.ssh(MASTER, "launch 'echo agent=$SSH_AUTH_SOCK'")
    assert sorted(line.split()[-1] for line in printed.splitlines()) == ["agent="] * NODES
