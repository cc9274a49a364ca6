"""The lines of the articles, and the examples, with the real engines on real nodes.

Only the path of the launcher and the name of the script are others than in the articles.
"""

import re

from tests.engines.conftest import NODES, WORKERS, Cluster
from tests.engines.training import KNOWN, TRAINER

LEARNED = 0.9
OPEN_MPI_OPTIONS = "-bind-to none -map-by slot -mca pml ob1 -mca btl ^openib"


def assert_learned(output: str, *, workers: int) -> None:
    """Every worker knows the digits, and equally well, as all have the same weights."""
    found = dict(re.findall(rf"worker (\d)/{workers} accuracy=(\S+)", output))
    assert set(found) == {str(rank) for rank in range(workers)}, output
    assert len(set(found.values())) == 1, output
    assert float(found["0"]) >= LEARNED, output


def test_the_environment_is_built_once_and_is_the_same_everywhere(cluster: Cluster) -> None:
    journals = [cluster.on(alias, "sudo journalctl -u deeplearning-engines.service") for alias in WORKERS]
    assert [" built horovod-" in journal for journal in journals] == [True, False, False]
    assert [" is ready" in journal for journal in journals] == [True, True, True]
    assert len({cluster.on(alias, "readlink /opt/deeplearning/engines/current") for alias in WORKERS}) == 1


def test_the_trainer_runs_as_in_the_first_article(cluster: Cluster) -> None:
    output = cluster.on_master(
        f"launch -n $DEEPLEARNING_WORKERS_COUNT -H $DEEPLEARNING_WORKERS_PATH python {TRAINER}"
        " --gpus $(seq -s , 0 1 $(($DEEPLEARNING_WORKER_GPU_COUNT - 1))) --network lenet --kv-store dist_sync"
    )
    [known] = re.findall(r"Validation-accuracy=(\S+) images/s", output)
    assert float(known) >= KNOWN, output


def test_gluon_with_parameter_servers_runs_as_in_the_second_article(cluster: Cluster) -> None:
    output = cluster.on_master(
        "printf 'deeplearning-worker2\\ndeeplearning-worker3\\n' > hosts; cd examples\n"
        "launch -n 2 -s 2 -H ../hosts --sync-dst-dir /home/ubuntu/job --launcher ssh"
        ' "python /home/ubuntu/job/gluon_parameter_server.py"'
    )
    assert_learned(output, workers=2)


def test_the_interface_is_the_users_and_ps_lite_says_what_it_does(cluster: Cluster) -> None:
    variables = "DMLC_INTERFACE=ens5 PS_VERBOSE=1"
    output = cluster.on_master(f"cd examples; export {variables}; launch -s 1 python gluon_parameter_server.py")
    assert_learned(output, workers=NODES)
    # Once a process says where it is bound: scheduler, server and workers.
    assert len(re.findall(r"Bind to|Assign rank|is connected", output)) >= NODES, output


def test_fails_when_the_users_interface_is_not_there(cluster: Cluster) -> None:
    output = cluster.on_master(
        "cd examples; export DMLC_INTERFACE=nowhere0; launch -s 1 python gluon_parameter_server.py; echo code $?"
    )
    *said, reason, code = output.splitlines()
    said = [line for line in said if not line.startswith("launch: all that it said: ")]
    refused = r" DMLC_INTERFACE must name an interface of .*\bens5\b.*, got 'nowhere0'$"
    assert said, output
    # Nothing of the script or of ps-lite: no process has started.
    assert all(re.search(refused, line) for line in said), output
    assert re.fullmatch(r"launch: \S+: (scheduler|server 0|worker \d) ended with exit code 1", reason), output
    assert code == "code 1", output


def test_horovod_runs_as_in_the_fifth_article(cluster: Cluster) -> None:
    hosts = ",".join(WORKERS)
    # With its own DistributedOptimizer; Horovod's later DistributedTrainer is in the next two.
    command = f"mpirun -np 3 -H {hosts} {OPEN_MPI_OPTIONS} python horovod_gluon.py --distributed-optimizer"
    output = cluster.on_master(f"cd examples; {command}")
    assert_learned(output, workers=NODES)


def test_horovod_runs_by_the_launchers_mpirun(cluster: Cluster) -> None:
    assert_learned(cluster.on_master("cd examples; launch --launcher mpi python horovod_gluon.py"), workers=NODES)


def test_horovod_runs_over_gloo(cluster: Cluster) -> None:
    assert_learned(cluster.on_master("cd examples; launch --engine horovod python horovod_gluon.py"), workers=NODES)


def test_pytorch_runs_as_under_torchrun(cluster: Cluster) -> None:
    assert_learned(cluster.on_master("cd examples; launch python torchrun_ddp.py"), workers=NODES)
