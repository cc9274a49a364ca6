"""Test where a job's line shows that its checkpoints are."""

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.job_records.checkpoints import CheckpointLocation, checkpoint_location
from launcher.job_records.recorder import JobRecorder, jobs_directory
from launcher.job_records.records import read_record
from launcher.sync.request import SyncRequest
from tests.launcher.example_job import JOB

TRAINER = "python /opt/deeplearning/trainer"
OUTLASTING, LOCAL, UNKNOWN = CheckpointLocation.OUTLASTING, CheckpointLocation.LOCAL, CheckpointLocation.UNKNOWN


def location(
    line: str, *, cwd: str = "/home/ubuntu", synced_to: str | None = None, **environment: str
) -> CheckpointLocation:
    """Return the location for a line of a shell, whose cluster's bucket is deeplearning-1."""
    command = ("/bin/bash", "-c", line)
    job = replace(JOB, command=command, environment=environment, sync=SyncRequest(directory=synced_to))
    return checkpoint_location(job, cwd=cwd, bucket="deeplearning-1")


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("", LOCAL),
        ("--model-prefix runs/net", LOCAL),
        ("--model-prefix $HOME/net", LOCAL),
        ("--model-prefix=${DEEPLEARNING_SCRATCH}/net", LOCAL),
        ("--model-prefix $DEEPLEARNING_BUCKET/net", LOCAL),  # for the trainer a folder of that name
        ("--model-prefix $EFS_MOUNTS/net", LOCAL),
        ("--model-prefix /shared2/net", LOCAL),
        ("--model-prefix s3://b/net --model-prefix net", LOCAL),
        ("--model-prefix s3://$DEEPLEARNING_BUCKET/net", OUTLASTING),
        ('--model-prefix "s3://b/net"', OUTLASTING),
        ("--model-prefix=/shared/net", OUTLASTING),
        ("--model-prefix $DEEPLEARNING_SHARED/net", OUTLASTING),
        ('--model-prefix "${EFS_MOUNT}"/net', OUTLASTING),
    ],
)
def test_trainers_prefix_shows_the_place(prefix: str, expected: CheckpointLocation) -> None:
    assert location(f"{TRAINER} --network lenet {prefix}") is expected


def test_trainers_prefix_may_be_in_a_variable_of_the_job() -> None:
    assert location(f"{TRAINER} --model-prefix $OUT/net", OUT="s3://b") is OUTLASTING
    assert location(f"{TRAINER} --model-prefix $OUT/net", OUT="/shared/runs") is OUTLASTING
    assert location(f"{TRAINER} --model-prefix $OUT/net", OUT="runs") is LOCAL


def test_relative_prefix_is_in_the_ranks_directory() -> None:
    assert location(f"{TRAINER} --model-prefix runs/net", cwd="/shared/me") is OUTLASTING
    assert location(TRAINER, cwd="/shared/me") is OUTLASTING
    assert location(f"{TRAINER} --model-prefix /tmp/net", cwd="/shared/me") is LOCAL
    assert location(TRAINER, cwd="/shared/me", synced_to="work") is LOCAL
    assert location(TRAINER, synced_to="/shared/work") is OUTLASTING


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python train.py", UNKNOWN),
        ("python train.py --out runs/shared/net --data /sharedata", UNKNOWN),
        ("python train.py --out s3://b/net", OUTLASTING),
        ("python train.py --bucket $DEEPLEARNING_BUCKET", OUTLASTING),
        ("python train.py --bucket deeplearning-1", OUTLASTING),
        ("python train.py --out=${EFS_MOUNT}/net", OUTLASTING),
        ("python train.py --out=/shared/net", OUTLASTING),
        ("python train.py --out $DEEPLEARNING_SHARED", OUTLASTING),
    ],
)
def test_line_of_another_script_must_name_the_place(line: str, expected: CheckpointLocation) -> None:
    assert location(line) is expected


def test_variable_of_the_job_or_its_directory_may_name_the_place() -> None:
    assert location("python train.py", OUT="s3://b/net", LR="0.1") is OUTLASTING
    assert location("python train.py", LR="0.1") is UNKNOWN
    assert location("python train.py", cwd="/shared/me") is OUTLASTING


@pytest.mark.parametrize(
    ("line", "durable", "marks"),
    [
        ("python train.py", False, (False, False)),
        ("python train.py", True, (False, True)),
        (TRAINER, False, (True, False)),
        (TRAINER, True, (True, False)),
        (f"{TRAINER} --model-prefix s3://b/net", True, (False, False)),
    ],
)
def test_record_marks_unknown_places_of_durable_jobs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, *, durable: bool, marks: tuple[bool, bool]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    job = replace(JOB, command=("/bin/bash", "-c", line), durable=durable)
    JobRecorder(job, job_id="1", cwd=str(tmp_path)).begin()
    record = read_record(jobs_directory() / "1")
    assert record is not None
    assert (record.local_checkpoints, record.unknown_checkpoints) == marks
