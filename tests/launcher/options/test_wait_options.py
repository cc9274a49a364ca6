"""Test which jobs are queued, for how long, and which can never start."""

import math
from pathlib import Path

import pytest

from launcher.errors import UsageError
from launcher.options import host_options
from launcher.options.parser import parse_options
from launcher.spec import JobSpec, NodeRange, QueuePolicy

DAY_S = 86400
DURATION = "--wait-timeout must be a duration such as 90m, 24h or 7d, at most 30d, got"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the variables of a master whose cluster declares four nodes, two of which are up."""
    monkeypatch.setattr(host_options, "declared_nodes", lambda: 4)
    (tmp_path / "workers").write_text("one\ntwo\n")
    return {"DEEPLEARNING_WORKERS_PATH": str(tmp_path / "workers"), "DEEPLEARNING_WORKER_GPU_COUNT": "2"}


def parse(line: str, environ: dict[str, str]) -> JobSpec:
    return parse_options([*line.split(), "python", "x"], environ=environ)


@pytest.mark.parametrize(
    ("line", "policy"),
    [
        ("", None),
        ("--wait", QueuePolicy(timeout_s=DAY_S, exclusive=True)),
        ("--wait --wait-timeout 90m -n 4", QueuePolicy(timeout_s=5400, exclusive=True, nodes=NodeRange(min=4, max=4))),
        ("--durable --wait-timeout 7d", QueuePolicy(timeout_s=7 * DAY_S, exclusive=True)),
        ("--durable --wait", QueuePolicy(timeout_s=math.inf, exclusive=True)),
        ("--durable --nnodes 1:4", QueuePolicy(timeout_s=math.inf, exclusive=True, nodes=NodeRange(min=1, max=4))),
        ("--durable --force", None),
        ("--wait -np 2", QueuePolicy(timeout_s=DAY_S, exclusive=True, nodes=NodeRange(min=1, max=1))),
        ("--wait --launcher local -n 2", QueuePolicy(timeout_s=DAY_S, exclusive=True)),
    ],
)
def test_jobs_wait_on_request_and_durable_ones_always(
    line: str, policy: QueuePolicy | None, environ: dict[str, str]
) -> None:
    assert parse(line, environ).queue_policy == policy


def test_wait_option_gives_a_job_exclusive_nodes_without_gpus(environ: dict[str, str]) -> None:
    environ |= {"DEEPLEARNING_WORKER_GPU_COUNT": "0"}
    policies = [parse(line, environ).queue_policy for line in ("--durable", "--wait", "--durable --wait")]
    assert [policy.exclusive for policy in policies if policy is not None] == [False, True, True]


def test_waiting_job_restarts_only_on_as_many_nodes(environ: dict[str, str]) -> None:
    job = parse("--wait -n 3 --max-restarts 1", environ)
    assert (len(job.hosts), job.restart_policy.min_nodes) == (2, 3)


def test_only_hosts_of_the_clusters_file_are_the_clusters(environ: dict[str, str]) -> None:
    sources = [parse(line, environ).host_source for line in ("", f"-H {environ['DEEPLEARNING_WORKERS_PATH']}")]
    assert [source.of_cluster for source in sources if source is not None] == [True, False]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("-n 3", "-n must be at most 2, the nodes currently in the cluster, got 3"),
        ("--wait -n 5", "-n must be at most 4, the nodes that the cluster declares, got 5"),
        ("--wait --num-workers 5", "--num-workers must be at most 4, the nodes that the cluster declares, got 5"),
        ("--durable -n 5", "-n must be at most 4, the nodes that the cluster declares, got 5"),
        ("--wait --nproc-per-node 3", "--wait allows at most 2 ranks per node, one per GPU; got 3"),
        ("--wait --force", "--wait waits for GPUs in use and cannot be combined with --force, which takes them"),
        ("--wait-timeout 1h", "--wait-timeout requires --wait"),
        ("--wait --wait-timeout 31d", f"{DURATION} '31d'"),
        ("--wait --wait-timeout soon", f"{DURATION} 'soon'"),
    ],
)
def test_job_that_can_never_start_is_refused(line: str, reason: str, environ: dict[str, str]) -> None:
    with pytest.raises(UsageError) as failure:
        parse(line, environ)
    assert str(failure.value) == reason
