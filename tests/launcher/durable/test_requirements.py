"""Test what a durable job refuses to store, and what it reports as not stored."""

from pathlib import Path

import pytest

from launcher.durable.requirements import notes, variables_not_kept
from launcher.errors import UsageError
from launcher.options.parser import parse_options
from tests.launcher.durable.durable_jobs import durable_job

TRAINER = "/opt/deeplearning/trainer"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--env", "WANDB_API_KEY:x", "true"], "stores no secret, and WANDB_API_KEY looks like one"),
        (["--env", "WANDB_API_KEY=x", "true"], "stores no secret, and WANDB_API_KEY looks like one"),
        (["--env", "LR", "true"], "cannot store --env LR, whose value only this shell has"),
        (["HF_TOKEN=x", "python", "train.py"], "stores no secret, and HF_TOKEN looks like one"),
        (["cd x && db_password='y z' ./run"], "stores no secret, and db_password looks like one"),
        (["--env", "PGPASSWORD:x", "true"], "PGPASSWORD looks like one"),
        (["OPENAI_APIKEY=x", "./run"], "OPENAI_APIKEY looks like one"),
        (["GITHUB_PAT=x", "./run"], "GITHUB_PAT looks like one"),
        (["-H", "hosts", "true"], "-H cannot be combined with --durable"),
    ],
)
def test_options_that_a_new_master_cannot_use_are_refused(words: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_options(["--launcher", "local", "--durable", *words], environ={"LR": "1"})


def test_other_variables_are_kept_and_the_job_is_detached() -> None:
    kept = ["--env", "TOKENIZERS_PARALLELISM:false", "LR=0.1", "MONKEY=1", "python", "x.py"]
    job = parse_options(["--launcher", "local", "--durable", *kept], environ={})
    assert (job.durable, job.detach, job.environment) == (True, True, {"TOKENIZERS_PARALLELISM": "false"})


def test_only_variables_missing_in_a_new_login_are_reported() -> None:
    shell = {"PATH": "/venv/bin", "VIRTUAL_ENV": "/venv", "SSH_TTY": "x", "PWD": "/x", "LC_ALL": "C", "SEED": "1"}
    assert variables_not_kept(shell, {"PATH": "/bin"}) == ["SEED", "VIRTUAL_ENV"]


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["train.py"], "cannot tell where this job keeps its checkpoints: only what is in S3 or the shared directory"),
        (["train.py", "--out", "s3://runs/7"], None),
        (["python", TRAINER, "--model-prefix", "$HOME/net"], "this training's checkpoints are on the nodes' disks"),
        (["python", TRAINER, "--model-prefix", "s3://bucket/net"], None),
    ],
)
def test_checkpoints_that_may_be_lost_are_reported_once(home: Path, words: list[str], reported: str | None) -> None:
    job, _ = durable_job(*words, home=home)
    found = [line for line in notes(job, cwd=str(home), environ={}) if "checkpoints" in line]
    assert [line[: len(reported or "")] for line in found] == ([reported] if reported else [])
