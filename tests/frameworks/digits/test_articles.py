"""Test that the articles' lines and the examples run with the real frameworks on real nodes.

Only the launcher's path and the script's name differ from the articles: "Distributed Deep Learning Made Easy" (AWS
Compute Blog), "Distributed Training using Apache MXNet" and "Distributed Learning with Apache MXNet and Horovod".
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.frameworks.mxnet_cluster import NODES, WORKERS, MxnetCluster
from tests.frameworks.training import MIN_ACCURACY, TRAINER

LEARNED = 0.9
SECOND = "second0"
ALL = "00:00:00:00:00:00"
BOUND = r"Bind to .*?role=(\w+).*?ip=([0-9.]+)"
"""Line that every ps-lite process prints once with PS_VERBOSE=1."""
OPEN_MPI_OPTIONS = "-bind-to none -map-by slot -mca pml ob1 -mca btl ^openib"


def assert_learned(output: str, *, workers: int) -> None:
    """Check that every worker recognizes the digits, and all equally well because they have the same weights."""
    accuracies = dict(re.findall(rf"worker (\d)/{workers} accuracy=(\S+)", output))
    assert set(accuracies) == {str(rank) for rank in range(workers)}, output
    assert len(set(accuracies.values())) == 1, output
    assert float(accuracies["0"]) >= LEARNED, output


def test_environment_is_built_once_and_is_the_same_everywhere(cluster: MxnetCluster) -> None:
    journals = [cluster.on(alias, "sudo journalctl -u deeplearning-mxnet-environment.service") for alias in WORKERS]
    assert [" built horovod-" in journal for journal in journals] == [True, False, False]
    assert [" is ready" in journal for journal in journals] == [True, True, True]
    assert len({cluster.on(alias, "readlink /opt/deeplearning/mxnet/current") for alias in WORKERS}) == 1


def test_trainer_runs_as_in_distributed_deep_learning_made_easy(cluster: MxnetCluster) -> None:
    output = cluster.on_master(
        f"launch -n $DEEPLEARNING_WORKERS_COUNT -H $DEEPLEARNING_WORKERS_PATH python {TRAINER}"
        " --gpus $(seq -s , 0 1 $(($DEEPLEARNING_WORKER_GPU_COUNT - 1))) --network lenet --kv-store dist_sync"
    )
    [known] = re.findall(r"Validation-accuracy=(\S+) images/s", output)
    assert float(known) >= MIN_ACCURACY, output


def test_gluon_runs_as_in_distributed_training_using_mxnet(cluster: MxnetCluster) -> None:
    output = cluster.on_master(
        "printf 'deeplearning-worker2\\ndeeplearning-worker3\\n' > hosts; cd examples\n"
        "launch -n 2 -s 2 -H ../hosts --sync-dst-dir /home/ubuntu/job --launcher ssh"
        ' "python /home/ubuntu/job/gluon_parameter_server.py"'
    )
    assert_learned(output, workers=2)


@pytest.fixture
def second_interface(cluster: MxnetCluster) -> Iterator[dict[str, str]]:
    """Create a VXLAN between the nodes, beside the interface of the default route; return each node's address on it."""
    own = "own=$(ip -4 -brief address show ens5 | grep -o '[0-9.]*/' | tr -d /)"
    routes = {alias: cluster.on(alias, f"{own}; echo $own") for alias in WORKERS}
    addresses = {alias: f"10.99.0.{slot}" for slot, alias in enumerate(WORKERS, 1)}
    for alias in WORKERS:
        others = [
            f"bridge fdb append 00:00:00:00:00:00 dev {SECOND} dst {routes[each]}" for each in set(WORKERS) - {alias}
        ]
        add = f"ip link add {SECOND} type vxlan id 99 dstport 4789 local {routes[alias]}"
        address = f"ip address add {addresses[alias]}/24 dev {SECOND}"
        steps = [add, address, f"ip link set {SECOND} up", *others]
        cluster.on(alias, f"sudo sh -ec '{'; '.join(steps)}'")
    yield addresses
    for alias in WORKERS:
        cluster.on(alias, f"sudo ip link delete {SECOND}")


def test_interface_of_the_users_variable_is_used(cluster: MxnetCluster, second_interface: dict[str, str]) -> None:
    export = f"export DMLC_INTERFACE={SECOND}; export PS_VERBOSE=1"
    output = cluster.on_master(f"cd examples; {export}; launch -s 3 python gluon_parameter_server.py --epochs 1")
    # Servers and workers report; the scheduler listens at the address that the others have.
    bound = re.findall(BOUND, output)
    assert {ip for role, ip in bound if role in ("server", "worker")} == set(second_interface.values()), output


def test_ps_lite_logs_verbosely_when_enabled(cluster: MxnetCluster) -> None:
    command = "launch -s 1 python gluon_parameter_server.py --epochs 1"
    output = cluster.on_master(f"cd examples; export PS_VERBOSE=1; {command}")
    roles = Counter(role for role, _ in re.findall(BOUND, output))
    assert roles == {"scheduler": 1, "server": 1, "worker": NODES}, output


def test_missing_interface_of_the_user_is_refused(cluster: MxnetCluster) -> None:
    output = cluster.on_master(
        "cd examples; export DMLC_INTERFACE=nowhere0; launch -s 1 python gluon_parameter_server.py; echo code $?"
    )
    *printed, reason, code = output.splitlines()
    printed = [line for line in printed if not line.startswith("launch: full log: ")]
    refused = r" DMLC_INTERFACE must name an interface of .*\bens5\b.*, got 'nowhere0'$"
    assert printed, output
    # There is no output of the script or of ps-lite, so no process has started.
    assert all(re.search(refused, line) for line in printed), output
    assert re.fullmatch(r"launch: \S+: (scheduler|server 0|worker \d) ended with exit code 1", reason), output
    assert code == "code 1", output


def test_horovod_runs_as_in_mxnet_and_horovod(cluster: MxnetCluster) -> None:
    hosts = ",".join(WORKERS)
    # It uses its own DistributedOptimizer; the next two use Horovod's later DistributedTrainer.
    command = f"mpirun -np 3 -H {hosts} {OPEN_MPI_OPTIONS} python horovod_gluon.py --distributed-optimizer"
    output = cluster.on_master(f"cd examples; {command}")
    assert_learned(output, workers=NODES)


LOOK = (
    "grep -alFf <(printenv SECRET) /proc/[0-9]*/cmdline 2>/dev/null | sed 's/^/told in /';"
    " echo looked for ${#SECRET}; exec python horovod_gluon.py"
)
"""Checks every node while mpirun and its daemons run; the secret must be on no command line."""


def test_horovod_runs_by_mpirun_without_exposing_the_secret(cluster: MxnetCluster) -> None:
    secret = "export SECRET=$(cat /proc/sys/kernel/random/uuid)"
    output = cluster.on_master(f"cd examples; {secret}; launch --launcher mpi --env SECRET {shlex.quote(LOOK)}")
    assert_learned(output, workers=NODES)
    assert output.count("looked for 36") == NODES, output
    assert "told in" not in output, output


def test_horovod_runs_over_gloo(cluster: MxnetCluster) -> None:
    assert_learned(cluster.on_master("cd examples; launch --framework horovod python horovod_gluon.py"), workers=NODES)
