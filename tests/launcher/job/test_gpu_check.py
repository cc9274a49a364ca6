"""Test jobs that would use GPUs in use; nvidia-smi is a stand-in, the rest is real."""

from dataclasses import replace
from pathlib import Path

import pytest

from cli.jobs.start import COPY_ONLY_OPTIONS
from launcher.errors import LaunchError
from launcher.hosts.hostfile import Host
from launcher.job.gpu_check import check_gpus, select_gpus
from launcher.paths import JOBS_DIR
from launcher.spec import JobSpec
from launcher.transport.gpus_in_use import GpuProcess, GpusInUse
from tests.launcher.loopback_cluster import ADDRESSES, LoopbackCluster, read_lines

FIRST, SECOND, _ = ADDRESSES
QUIET = "exit 0"
IN_USE = """
case "$1" in
--query-compute-apps=*) echo "GPU-bbbb, 4711, /usr/bin/python3" ;;
--query-gpu=*) printf 'GPU-aaaa, 0\\nGPU-bbbb, 1\\n' ;;
esac
"""
HANGS = "exec sleep 1000"
BROKEN = "echo 'NVIDIA-SMI has failed, because, it could not'; exit 9"


@pytest.fixture
def patient_cluster(cluster: LoopbackCluster, patient_launcher: Path) -> LoopbackCluster:
    """Return the same user, with a launcher that waits for nvidia-smi also on a busy machine."""
    return replace(cluster, launcher=patient_launcher)


def with_smi(cluster: LoopbackCluster, script: str) -> dict[str, str]:
    """Return the environment of a master that has GPUs."""
    return {"PATH": f"{cluster.write_program('nvidia-smi', script).parent}:{cluster.environment['PATH']}"}


def test_busy_gpu_is_refused_before_any_rank_starts(patient_cluster: LoopbackCluster) -> None:
    environment = with_smi(patient_cluster, IN_USE)
    options = ("-n", "2", "--nproc-per-node", "2")
    result = patient_cluster.run(*options, "echo up", environment=environment, hosts=[FIRST, SECOND])
    assert (result.code, result.stdout) == (1, b"")
    assert result.reason == (
        "launch: nothing started: GPUs are in use (--wait queues the job, --force starts anyway): "
        f"{FIRST}: GPU 1 by process 4711 (python3)"
    )


@pytest.mark.parametrize(
    ("options", "script"),
    [
        (["--nproc-per-node", "2", "--force"], IN_USE),
        (["--nproc-per-node", "1", "--env", "CUDA_VISIBLE_DEVICES:0"], IN_USE),
        (["--nproc-per-node", "2", "--env", "CUDA_VISIBLE_DEVICES:0"], IN_USE),
        ([*COPY_ONLY_OPTIONS], IN_USE),
        (["--nproc-per-node", "2"], QUIET),
        (["--nproc-per-node", "2"], BROKEN),
    ],
)
def test_job_starts_if_its_gpus_are_free(cluster: LoopbackCluster, options: list[str], script: str) -> None:
    result = cluster.run("-n", "1", *options, "true", environment=with_smi(cluster, script))
    assert (result.code, result.stderr) == (0, b"")


def test_node_whose_nvidia_smi_hangs_counts_its_gpus_as_free(cluster: LoopbackCluster) -> None:
    assert cluster.run("-n", "1", "true", environment=with_smi(cluster, HANGS)).code == 0


def test_gpus_claimed_by_another_job_are_refused_until_it_ends(cluster: LoopbackCluster) -> None:
    environment = with_smi(cluster, QUIET)
    one_gpu = ("-n", "1", "--env", "CUDA_VISIBLE_DEVICES:0")
    with cluster.start(*one_gpu, "echo up; sleep 1000", environment=environment) as first:
        read_lines(first.stdout, 1)
        (directory,) = (cluster.directory / JOBS_DIR).iterdir()
        refused = cluster.run("-n", "1", "true", environment=environment)
        assert refused.code == 1
        assert refused.reason.endswith(f"--force starts anyway): {FIRST}: job {directory.name}")
        other = ("-n", "1", "--env", "CUDA_VISIBLE_DEVICES:1", "true")
        assert cluster.run(*other, environment=environment).code == 0
        first.terminate()
        first.communicate(timeout=60)
    assert cluster.run("-n", "1", "true", environment=environment).code == 0


def test_two_jobs_share_a_node_without_gpus(cluster: LoopbackCluster) -> None:
    with cluster.start("-n", "1", "echo up; sleep 1000") as first:
        read_lines(first.stdout, 1)
        assert cluster.run("-n", "1", "true").code == 0


# ---- which GPUs a job uses ----

HOST = Host(name="a", slots=2)


def job(framework: str = "torch", *, visible: str | None = None, command: tuple[str, ...] = ("x",)) -> JobSpec:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return JobSpec(
        hosts=(HOST,), is_local=False, framework=framework, servers=0, environment=environment, command=command
    )


@pytest.mark.parametrize(
    ("one", "gpus"),
    [
        (job(), ("0", "1")),
        (job("mxnet"), None),
        (job(visible="3, 5"), ("3", "5")),
        (job(visible=""), ()),
        (job(command=("env", "A=1", "CUDA_VISIBLE_DEVICES=4", "python", "x")), ("4",)),
    ],
)
def test_job_takes_its_visible_gpus_or_one_per_rank(one: JobSpec, gpus: tuple[str, ...] | None) -> None:
    assert select_gpus(one, HOST) == gpus


def test_single_process_may_take_every_gpu_of_its_node() -> None:
    alone = Host(name="a", slots=1)
    assert select_gpus(job(), alone) is None
    assert select_gpus(job(visible="3"), alone) == ("3",)


def test_local_job_has_the_gpus_of_its_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert select_gpus(replace(job(), is_local=True), HOST) == ("2", "3")
    assert select_gpus(job(), HOST) == ("0", "1")


def test_single_process_is_refused_if_it_could_use_a_busy_gpu(patient_cluster: LoopbackCluster) -> None:
    environment = with_smi(patient_cluster, IN_USE)
    result = patient_cluster.run("-n", "1", "--nproc-per-node", "1", "echo up", environment=environment)
    assert (result.code, result.stdout) == (1, b"")
    assert result.reason.endswith(f"{FIRST}: GPU 1 by process 4711 (python3)")


@pytest.mark.parametrize(
    ("one", "clash"),
    [
        (job("mxnet"), True),
        (job(visible="7"), True),
        (job(visible="GPU-77"), True),
        (job(visible="GPU-78"), False),
        (job(visible="-1"), False),
        (job(visible=""), False),
        (job(), False),
    ],
)
def test_indices_and_beginnings_of_uuids_name_a_gpu(one: JobSpec, clash: bool) -> None:
    in_use = [GpusInUse(processes=(GpuProcess(gpu_index="7", gpu_uuid="GPU-7777", process="process 1 (x)"),))]
    if clash:
        with pytest.raises(LaunchError, match=r"a: GPU 7 by process 1 \(x\)$"):
            check_gpus(one, in_use)
    else:
        check_gpus(one, in_use)


@pytest.mark.parametrize(("visible", "clash"), [("2", True), ("0", False), ("", False), (None, False)])
def test_jobs_conflict_if_they_take_the_same_gpus(visible: str | None, clash: bool) -> None:
    in_use = [GpusInUse(jobs={"j": ("2", "3")})]
    if clash:
        with pytest.raises(LaunchError, match=r"a: job j$"):
            check_gpus(job(visible=visible), in_use)
    else:
        check_gpus(job(visible=visible), in_use)
