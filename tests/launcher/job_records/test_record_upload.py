"""Test the upload of a job's record; `aws` is a stand-in that keeps its input."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.job_records import record_upload
from launcher.job_records.records import JobRecord, JobState
from tests.launcher.loopback_cluster import ADDRESSES, LoopbackCluster

FIRST = ADDRESSES[0]


def with_aws(cluster: LoopbackCluster, script: str) -> dict[str, str]:
    aws = cluster.write_program("aws", script)
    return {"PATH": f"{aws.parent}:{cluster.environment['PATH']}", "DEEPLEARNING_BUCKET": "b"}


def test_jobs_record_is_copied_to_the_bucket(cluster: LoopbackCluster, patient_launcher: Path, tmp_path: Path) -> None:
    keep = f'echo "$@" >> {tmp_path}/asked; cat > {tmp_path}/kept'
    patient = replace(cluster, launcher=patient_launcher)
    result = patient.run("-n", "1", "exit 3", environment=with_aws(cluster, keep))
    assert result.code == 3
    job = JobRecord.from_bytes((tmp_path / "kept").read_bytes())
    assert (job.state, job.exit_code) == (JobState.FAILED, 3)
    # Only once, because a short job is not uploaded while it runs.
    assert (tmp_path / "asked").read_text() == f"s3 cp --only-show-errors - s3://b/jobs/{job.id}.json\n"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo; echo 'upload failed: AccessDenied' >&2; exit 1", "aws: upload failed: AccessDenied"),
        ("exit 1", "aws: exit code 1"),
    ],
)
def test_failed_upload_is_a_note_and_no_failure(cluster: LoopbackCluster, script: str, reason: str) -> None:
    result = cluster.run("-n", "1", "true", environment=with_aws(cluster, script))
    assert result.code == 0
    assert result.stderr.decode() == f"launch: the job's record is not in the bucket: {reason}\n"


def test_job_runs_without_the_aws_command(cluster: LoopbackCluster) -> None:
    programs = cluster.directory / "programs"
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    (programs / "env").symlink_to("/usr/bin/env")
    result = cluster.run("-n", "1", ":", environment={"PATH": str(programs), "DEEPLEARNING_BUCKET": "b"})
    assert result.code == 0
    assert result.reason == "launch: the job's record is not in the bucket: cannot run aws: No such file or directory"


def test_hanging_upload_ends_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aws = tmp_path / "aws"
    aws.write_text("#!/bin/sh\nexec sleep 1000\n")
    aws.chmod(0o755)
    (tmp_path / "job.json").touch()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("DEEPLEARNING_BUCKET", "b")
    monkeypatch.setattr(record_upload, "TIMEOUT_S", 0.1)
    assert record_upload.upload(tmp_path) == "no answer within 0.1 s"


def test_records_are_stored_under_the_clusters_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = tmp_path / "node.json"
    node.write_text(json.dumps({"cluster_name": "team", "region": "eu-west-1", "table": "t"}))
    aws = tmp_path / "aws"
    aws.write_text(f'#!/bin/sh\necho "$5 $AWS_DEFAULT_REGION" > {tmp_path}/asked\n')
    aws.chmod(0o755)
    directory = tmp_path / "j"
    directory.mkdir()
    (directory / "job.json").touch()
    monkeypatch.setattr("launcher.hosts.node_config.NODE_CONFIG_FILE", str(node))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("DEEPLEARNING_BUCKET", "b")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert record_upload.upload(directory) is None
    assert (tmp_path / "asked").read_text() == "s3://b/jobs/team/j.json eu-west-1\n"
