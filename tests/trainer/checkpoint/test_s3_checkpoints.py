"""Test copies in S3, with the real AWS command line and an S3 server."""

import json
import logging
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import boto3
import numpy as np
import pytest

from tests.trainer.conftest import BUCKET
from tests.trainer.programs.processes import REPOSITORY, run, running
from tests.waiting import wait_until
from trainer import s3
from trainer.backend import TrainingState
from trainer.checkpoint.best import Score
from trainer.checkpoint.format import Checkpoint, CheckpointMetadata, save_checkpoint
from trainer.checkpoint.store import CheckpointStore
from trainer.errors import TrainerError
from trainer.progress import Progress
from trainer.s3 import S3Folder

FOLDER = f"s3://{BUCKET}/digits"


pytestmark = pytest.mark.usefixtures("aws")


def names() -> list[str]:
    return sorted(one.key.removeprefix("digits/") for one in boto3.resource("s3").Bucket(BUCKET).objects.all())


def store(directory: Path, *, every_s: float = 3600, folder: str = FOLDER) -> CheckpointStore:
    directory.mkdir(exist_ok=True)
    return CheckpointStore(str(directory / "net"), s3_folder=S3Folder(folder), upload_every_s=every_s)


def checkpoint(*, epoch: int, run_started_at: float = 5.5, accuracy: float | None = None) -> Checkpoint:
    metadata = CheckpointMetadata(
        settings={}, progress=Progress(run_started_at=run_started_at, epoch=epoch), validation_accuracy=accuracy
    )
    return Checkpoint(metadata=metadata, state=TrainingState(weights={"a": np.full(9, epoch)}))


def test_another_machine_resumes_from_s3(tmp_path: Path) -> None:
    first = store(tmp_path / "first")
    for epoch in (1, 2):
        first.save(partial(checkpoint, epoch=epoch))
    first.upload_newest_and_wait()
    assert names() == ["net-resume-0000000005.500000-0002-000000000.npz"]
    other = store(tmp_path / "other")
    found = other.load_newest()
    assert found is not None
    assert found.metadata.progress == Progress(run_started_at=5.5, epoch=2)
    # Its next checkpoint replaces the one that it downloaded.
    other.save(partial(checkpoint, epoch=3))
    other.upload_newest_and_wait()
    assert names() == ["net-resume-0000000005.500000-0003-000000000.npz"]


def test_uploads_run_during_training(tmp_path: Path) -> None:
    checkpoints = store(tmp_path / "net", every_s=0)
    checkpoints.save(partial(checkpoint, epoch=1))
    wait_until(names, "an upload", timeout_s=60)
    assert names() == ["net-resume-0000000005.500000-0001-000000000.npz"]
    wait_until(lambda: not [*(tmp_path / "net").glob(".*")], "the end of the temporary file", timeout_s=60)


def test_best_checkpoint_is_uploaded_early_and_known_to_another_machine(tmp_path: Path) -> None:
    first = store(tmp_path / "first")
    first.save(partial(checkpoint, epoch=1, accuracy=0.9), is_best=True)
    wait_until(names, "an upload", timeout_s=60)
    other = store(tmp_path / "other")
    other.read_best_score_from_s3()
    assert [other.best_accuracy(run_started_at=run_started_at) for run_started_at in (5.5, 4)] == [0.9, None]
    # The best checkpoint of an earlier run on this machine does not replace it at the end.
    end = tmp_path / "other/net-0003.npz"
    save_checkpoint(end, checkpoint(epoch=3, accuracy=0.5))
    save_checkpoint(other.best_path, checkpoint(epoch=2, run_started_at=4, accuracy=0.95))
    assert other.upload_final(end, best=Score(5.5, 0.9)) == f"{FOLDER}/net-0003.npz"
    assert names() == ["net-0003.npz", "net-best.npz"]
    assert boto3.resource("s3").Object(BUCKET, "digits/net-best.npz").metadata["accuracy"] == "0.9"


def test_best_copy_without_metadata_is_ignored(tmp_path: Path) -> None:
    boto3.resource("s3").Object(BUCKET, "digits/net-best.npz").put(Body=b"a user's")
    checkpoints = store(tmp_path / "net")
    checkpoints.read_best_score_from_s3()
    assert checkpoints.best_accuracy(run_started_at=5.5) is None


def test_older_copy_is_not_downloaded(tmp_path: Path) -> None:
    store(tmp_path / "first").upload_newest_and_wait()
    first, second = store(tmp_path / "first"), store(tmp_path / "second")
    first.save(partial(checkpoint, epoch=1))
    first.upload_newest_and_wait()
    second.save(partial(checkpoint, epoch=2))
    second.wait_until_written()
    found = second.load_newest()
    assert found is not None
    assert found.metadata.progress.epoch == 2
    assert [path.name for path in (tmp_path / "second").iterdir()] == [
        "net-resume-0000000005.500000-0002-000000000.npz"
    ]


def test_failing_s3_listing_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=r"aws s3 ls s3://no-such-bucket/x/net-resume-: .*NoSuchBucket"):
        store(tmp_path / "net", folder="s3://no-such-bucket/x").load_newest()


def test_failing_upload_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = store(tmp_path / "net", folder="s3://no-such-bucket/x")
    checkpoints.save(partial(checkpoint, epoch=1))
    with caplog.at_level(logging.WARNING):
        checkpoints.upload_newest_and_wait()
    assert "NoSuchBucket" in caplog.text
    assert len(list((tmp_path / "net").iterdir())) == 1


def test_partial_download_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    aws = tmp_path / "aws"
    # The process is killed during the download, as by a lack of memory or by its owner.
    aws.write_text('#!/bin/sh\nfor path; do :; done\necho half > "$path"\nkill -9 $PPID\n')
    aws.chmod(0o755)
    here = tmp_path / "here"
    here.mkdir()
    name = "net-resume-0000000005.500000-0002-000000000.npz"
    fetch = "import sys; from pathlib import Path; from trainer.s3 import S3Folder; "
    fetch += "S3Folder('s3://bucket/x').download(sys.argv[1], Path(sys.argv[1]))"
    killed = subprocess.run(
        [sys.executable, "-c", fetch, name],
        cwd=here,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)},
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL
    assert len(list(here.iterdir())) == 1
    CheckpointStore(str(here / "net"))
    assert not list(here.iterdir())


def test_missing_aws_command_line_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TrainerError, match="the AWS command line is not installed"):
        store(tmp_path / "net").load_newest()


@pytest.mark.parametrize(
    ("variables", "region"),
    [
        ({}, "cn-north-1"),
        ({"AWS_REGION": "eu-west-1"}, "eu-west-1"),
        ({"AWS_DEFAULT_REGION": "us-gov-west-1"}, "us-gov-west-1"),
        ({"AWS_CONFIG_FILE": "{directory}/config"}, "the file's"),
        ({"AWS_CONFIG_FILE": "{directory}/config", "AWS_PROFILE": "team"}, "the file's"),
        ({"AWS_CONFIG_FILE": "{directory}/config", "AWS_PROFILE": "sso"}, "cn-north-1"),
        ({"AWS_CONFIG_FILE": "{directory}/broken"}, "cn-north-1"),
    ],
    ids=["node", "region", "default", "file", "profile", "profile without region", "broken file"],
)
def test_region_is_that_of_the_user_or_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], region: str
) -> None:
    (tmp_path / "config").write_text(
        "[default]\nregion = us-gov-east-1\n[profile team]\nregion=us-gov-west-1\n"
        "[profile sso]\nsso_region = eu-west-1\ns3 =\n  max_concurrent_requests = 20\n"
    )
    (tmp_path / "broken").write_text("region = us-gov-east-1\n")
    (tmp_path / "node.json").write_text(json.dumps({"region": "cn-north-1"}))
    monkeypatch.setattr(s3, "NODE_CONFIG_FILE", tmp_path / "node.json")
    program = tmp_path / "aws"
    program.write_text('#!/bin/sh\necho "date time size ${AWS_REGION:-${AWS_DEFAULT_REGION:-the file\'s}}"\n')
    program.chmod(0o755)
    for name in (*s3.REGION_VARIABLES, *s3.PROFILE_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "AWS_CONFIG_FILE": "/nonexistent", **variables}
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(directory=tmp_path))
    assert S3Folder("s3://bucket/x").names(starting_with="net") == [region]


@pytest.mark.soak
def test_run_resumes_from_s3_without_its_machines(tmp_path: Path, endpoint: str) -> None:
    options = ("--num-epochs", "2", "--benchmark", "1", "--disp-batches", "1", "--model-prefix", f"{FOLDER}/net")
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    for machine in ("gone", "new"):
        (tmp_path / machine).mkdir()
    program, stopped = ("-m", "tests.trainer.programs.stopped_trainer"), {"STOPPED": "0 21 SIGTERM"}
    with running(*options, directory=tmp_path / "gone", program=program, variables=aws | stopped) as [rank]:
        assert rank.wait() == 128 + signal.SIGTERM
    [again] = run(*options, directory=tmp_path / "new", variables=aws)
    assert "resuming at epoch 0" in again.log.read_text()
    assert f"checkpoint={FOLDER}/net-0002.npz" in again.out.read_text()
    assert names() == ["net-0002.npz", "net-best.npz"]
    assert {path.name for path in (tmp_path / "new/checkpoints").iterdir() if path.suffix != ".lock"} == {
        *(".net-finished", "net-0002.npz", "net-best.npz")
    }


def test_run_resumes_from_s3_after_a_kill_between_upload_and_delete(tmp_path: Path, endpoint: str) -> None:
    options = ("--num-epochs", "2", "--benchmark", "1")
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    for machine in ("undisturbed", "gone", "new"):
        (tmp_path / machine).mkdir()
    [undisturbed] = run(*options, directory=tmp_path / "undisturbed")
    copied = (*options, "--model-prefix", f"{FOLDER}/net")
    killed = {**aws, "KILL_RANK": "0", "KILL_AT": "copy", "KILL_COUNT": "2"}
    program = ("-m", "tests.trainer.programs.killed_trainer")
    with running(
        *copied, "--checkpoint-seconds", "0.01", directory=tmp_path / "gone", program=program, variables=killed
    ) as [rank]:
        assert rank.wait() == -signal.SIGKILL
    # The previous copy is removed only after the next one is uploaded.
    assert len([name for name in names() if "-resume-" in name]) == 2
    [again] = run(*copied, directory=tmp_path / "new", variables=aws)
    assert "resuming at epoch" in again.log.read_text()
    assert again.digests[-1] == undisturbed.digests[-1]
    assert names() == ["net-0002.npz", "net-best.npz"]
