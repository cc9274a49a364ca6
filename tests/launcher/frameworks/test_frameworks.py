"""Test the variables that each framework gives its processes."""

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.errors import UsageError
from launcher.frameworks import JobTopology, horovod, load_framework, mpi, mxnet, torch
from launcher.frameworks.torch import rank_variables
from launcher.hosts.hostfile import Host
from launcher.spec import JobSpec, ProcessSpec

ADDRESSES = ("10.0.0.4", "10.0.0.5", "10.0.0.6")


def job(framework: str, slots: list[int], *, servers: int = 0, **environment: str) -> JobSpec:
    return JobSpec(
        hosts=tuple(Host(name=f"n{node}", slots=count) for node, count in enumerate(slots)),
        is_local=False,
        framework=framework,
        servers=servers,
        environment=environment,
        command=("python", "x"),
    )


def topology(nodes: int) -> JobTopology:
    return JobTopology(job_id="j", addresses=ADDRESSES[:nodes], port=1234, rendezvous_endpoint=("10.0.0.9", 4321))


def plan(asked: JobSpec) -> list[tuple[ProcessSpec, ...]]:
    return list(load_framework(asked.framework).plan(asked, topology(len(asked.hosts))))


# ---- torch ----


@pytest.mark.parametrize(("nnodes", "nproc"), [(1, 1), (3, 1), (1, 8), (3, 4)])
def test_ranks_are_numbered_node_by_node_without_gaps(nnodes: int, nproc: int) -> None:
    nodes = rank_variables([nproc] * nnodes, master_addr="10.0.0.4", master_port=1234, run_id="j")
    ranks = [rank for node in nodes for rank in node]
    assert [rank["RANK"] for rank in ranks] == [str(number) for number in range(nnodes * nproc)]
    assert {rank["WORLD_SIZE"] for rank in ranks} == {str(nnodes * nproc)}
    assert {(rank["MASTER_ADDR"], rank["MASTER_PORT"]) for rank in ranks} == {("10.0.0.4", "1234")}
    for node_rank, node in enumerate(nodes):
        assert [rank["LOCAL_RANK"] for rank in node] == [str(number) for number in range(nproc)]
        assert {rank["LOCAL_WORLD_SIZE"] for rank in node} == {str(nproc)}
        assert {rank["GROUP_RANK"] for rank in node} == {rank["NODE_RANK"] for rank in node}
        assert {rank["NODE_RANK"] for rank in node} == {str(node_rank)}


def test_nodes_may_have_different_numbers_of_ranks() -> None:
    nodes = rank_variables([1, 3, 2], master_addr="10.0.0.4", master_port=1234, run_id="j")
    assert [[rank["RANK"] for rank in node] for node in nodes] == [["0"], ["1", "2", "3"], ["4", "5"]]
    assert [{rank["LOCAL_WORLD_SIZE"] for rank in node} for node in nodes] == [{"1"}, {"3"}, {"2"}]
    assert {rank["WORLD_SIZE"] for node in nodes for rank in node} == {"6"}


def test_torch_ranks_have_torchruns_variables() -> None:
    # torchrun's documented variables, without those of its own store and error files.
    documented = (
        "LOCAL_RANK RANK GROUP_RANK ROLE_RANK LOCAL_WORLD_SIZE WORLD_SIZE ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT"
    )
    elastic = "TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID"
    assert {*documented.split(), *elastic.split()} <= set(torch.FRAMEWORK.reserved_variables)
    assert [process.name for process in plan(job("torch", [1, 2]))[1]] == ["rank 1", "rank 2"]


# ---- mxnet ----


def test_mxnet_has_one_scheduler_spread_servers_and_one_worker_per_machine() -> None:
    nodes = plan(job("mxnet", [1, 1, 1], servers=4))
    assert [[process.name for process in node] for node in nodes] == [
        ["scheduler", "server 0", "server 3", "worker 0"],
        ["server 1", "worker 1"],
        ["server 2", "worker 2"],
    ]
    roles = [process.environment["DMLC_ROLE"] for node in nodes for process in node]
    assert roles == ["scheduler", "server", "server", "worker", "server", "worker", "server", "worker"]
    assert [process.is_required for process in nodes[1]] == [False, True]


def test_mxnet_gets_addresses_instead_of_names() -> None:
    nodes = plan(job("mxnet", [1, 1, 1], servers=3))
    for node, address in zip(nodes, ADDRESSES, strict=True):
        assert {process.environment["DMLC_NODE_HOST"] for process in node} == {address}
    everybody = [process.environment for node in nodes for process in node]
    assert {(one["DMLC_PS_ROOT_URI"], one["DMLC_PS_ROOT_PORT"]) for one in everybody} == {("10.0.0.4", "1234")}
    assert {(one["DMLC_NUM_WORKER"], one["DMLC_NUM_SERVER"]) for one in everybody} == {("3", "3")}


def test_mxnets_workers_have_task_ids_in_the_order_of_the_hosts_file() -> None:
    nodes = plan(job("mxnet", [1, 1, 1], servers=3))
    tasks = [process.environment.get("DMLC_TASK_ID") for node in nodes for process in node if process.is_required]
    assert tasks == ["0", "1", "2"]
    assert "DMLC_TASK_ID" in mxnet.FRAMEWORK.reserved_variables


@pytest.mark.parametrize("framework", ["torch", "mxnet", "horovod"])
def test_ranks_of_every_framework_have_job_id_and_restart_count(framework: str) -> None:
    third = JobTopology(
        job_id="j", addresses=ADDRESSES[:2], port=1, rendezvous_endpoint=("10.0.0.9", 1), restart_count=2
    )
    nodes = load_framework(framework).plan(job(framework, [1, 1], servers=2), third)
    everybody = [one.environment for node in nodes for one in node]
    assert {(one["TORCHELASTIC_RESTART_COUNT"], one["TORCHELASTIC_RUN_ID"]) for one in everybody} == {("2", "j")}
    assert {"TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"} <= {*load_framework(framework).reserved_variables}


def test_users_interface_takes_precedence_over_an_address() -> None:
    nodes = plan(job("mxnet", [1, 1], servers=1, DMLC_INTERFACE="eth1"))
    assert not any("DMLC_NODE_HOST" in process.environment for node in nodes for process in node)


def test_loopback_of_several_machines_is_refused_for_mxnet() -> None:
    with pytest.raises(UsageError) as caught:
        plan(job("mxnet", [1, 1], servers=1, DMLC_INTERFACE="lo"))
    assert str(caught.value) == "DMLC_INTERFACE must be the interface that leads to the other nodes, got 'lo'"
    here = JobTopology(job_id="j", addresses=("127.0.0.1", "127.0.0.2"), port=1)
    assert len(mxnet.plan(job("mxnet", [1, 1], servers=1, DMLC_INTERFACE="lo"), here)) == 2


# ---- horovod ----


def test_horovods_ranks_have_a_rank_in_all_three_communicators() -> None:
    nodes = plan(job("horovod", [1, 3, 2]))

    def places(name: str) -> list[str]:
        return [process.environment[f"HOROVOD_{name}"] for node in nodes for process in node]

    assert places("RANK") == ["0", "1", "2", "3", "4", "5"]
    assert places("LOCAL_RANK") == ["0", "0", "1", "2", "0", "1"]
    assert places("LOCAL_SIZE") == ["1", "3", "3", "3", "2", "2"]
    assert places("CROSS_RANK") == ["0", "1", "0", "0", "2", "1"]
    assert places("CROSS_SIZE") == ["3", "3", "2", "1", "3", "2"]
    assert set(places("SIZE")) == {"6"}
    assert set(places("GLOO_RENDEZVOUS_ADDR")) == {"10.0.0.9"}
    assert set(places("GLOO_RENDEZVOUS_PORT")) == {"4321"}
    assert set(places("CONTROLLER")) == set(places("CPU_OPERATIONS")) == {"gloo"}


def test_every_communicator_of_horovod_has_its_size_at_the_store() -> None:
    sizes = {"global": 6, "local_n0": 1, "local_n1": 3, "local_n2": 2, "cross_0": 3, "cross_1": 2, "cross_2": 1}
    assert horovod.scopes(job("horovod", [1, 3, 2])) == sizes


# ---- mpirun ----


@pytest.mark.usefixtures("launcher_path_without_blanks")
def test_mpirun_has_the_options_of_horovods_documentation_and_no_value_of_a_variable() -> None:
    asked = job("mpi", [2, 2], SECRET="hunter2")
    (mpirun,), (daemon,) = plan(asked)
    assert " ".join(mpirun.command) == (
        "mpirun -np 4 -H n0:2,n1:2 -bind-to none -map-by slot -mca pml ob1 -mca btl ^openib"
        " -x NCCL_SOCKET_IFNAME -x PATH -x SECRET python x"
    )
    # The job ends with mpirun.
    assert (mpirun.is_required, daemon.is_required) == (True, False)
    assert "SECRET" not in " ".join(daemon.command)


@pytest.mark.usefixtures("launcher_path_without_blanks")
def test_runners_start_mpiruns_daemons() -> None:
    # The waiting programs also wait during the grace period of an earlier attempt's processes on a node.
    (mpirun,), *others = plan(replace(job("mpi", [1, 1, 1]), grace_s=300))
    agent = mpirun.environment[mpi.REMOTE_SHELL].split(" ")
    assert agent[agent.index("agent") :][2:5] == ["420", "ssh", "-T"]
    assert agent[-1] == "--"
    assert "StrictHostKeyChecking=yes" in agent
    assert [[(one.name, *one.command[-3:]) for one in node] for node in others] == [
        [("orted 1", "await", "launch-j-0-n1", "420")],
        [("orted 2", "await", "launch-j-0-n2", "420")],
    ]
    # No daemon may start others or leave its runner.
    assert mpirun.environment["OMPI_MCA_plm_rsh_no_tree_spawn"] == "1"
    assert mpirun.environment["OMPI_MCA_orte_leave_session_attached"] == "1"


def test_launcher_path_with_blanks_is_refused_for_mpirun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "PROGRAM", Path("/home/me/my code/launcher/__main__.py"))
    with pytest.raises(UsageError, match="needs a launcher whose path has no blanks, got '/home/me/my code/launcher"):
        plan(job("mpi", [1, 1]))
    assert plan(job("mpi", [2]))
