"""Test the answer to a command line in the order, or with the options, of torchrun, mpirun, Slurm or sky."""

import pytest

from cli.errors import EXIT_USAGE
from cli.main import main
from tests.cli.moto_cluster import error_line

PROCESSES = "--nproc-per-node is the number of processes on each node"


@pytest.mark.parametrize(
    ("line", "option", "right"),
    [
        ("--lr 0.1 train.py", "--lr", "-- train.py --lr 0.1"),
        ("--lr=0.1 -- train.py --epochs 3", "--lr", "-- train.py --epochs 3 --lr=0.1"),
        ("--amp -n 2 --lr 0.1 python -u train.py", "--amp", "... -- python -u train.py --amp --lr 0.1"),
        ("--env TOKEN=x --lr 0.1 --detach train.py", "--lr", "... -- train.py --lr 0.1"),
        ("-lr 0.1 train.py", "-l", "-- train.py -lr 0.1"),
        ("--lr 0.1", "--lr", "-- train.py --lr 0.1"),
        ("--max_restarts 3 --batch_size=4 train.py", "--batch_size", "... -- train.py --batch_size=4"),
        ("--batch_size 4 --max_restarts 3 train.py", "--batch_size", "... -- train.py --batch_size 4"),
    ],
)
def test_option_of_the_script_before_its_name_is_moved_behind_it(
    line: str, option: str, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *line.split()]) == EXIT_USAGE
    advice = "options of the script go after its name, as in"
    assert error_line(capsys) == f"no such option {option!r}: {advice}: dlcluster run {right}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-np 4 train.py", f"no such option '-np': {PROCESSES}, -n the number of nodes"),
        ("-np4 train.py", f"no such option '-np4': {PROCESSES}, -n the number of nodes"),
        (
            "--nnodes 1:3 train.py",
            "--nnodes must be one number, got '1:3'; to restart a lost job on fewer nodes: dlcluster push, then "
            "dlcluster run -- launch --nnodes 1:3 --max-restarts 3 ...",
        ),
        ("-n two train.py", "-n is the number of nodes, got 'two'; --name names the job"),
        ("--nodes 2 train.py", "no such option '--nodes': the number of nodes is -n"),
        (
            "--nodes 2 --standalone train.py",
            "no such option '--nodes': the number of nodes is -n; no such option '--standalone': -n 1 runs on one node",
        ),
        (
            "--rdzv_endpoint=host:29400 train.py",
            "no such option '--rdzv-endpoint': leave it out, the launcher connects the processes itself",
        ),
        ("--standalone train.py", "no such option '--standalone': -n 1 runs on one node"),
        ("-H a,b train.py", "no such option '-H': a job runs on the cluster's own nodes, -n 2 takes two of them"),
        (
            "--wait --force -- train.py",
            "--wait waits for GPUs in use and cannot be combined with --force, which takes them",
        ),
    ],
)
def test_options_of_torchrun_and_mpirun_are_answered_with_ours(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *line.split()]) == EXIT_USAGE
    assert error_line(capsys) == message


@pytest.mark.parametrize(
    ("line", "option", "answer"),
    [
        ("--time 60 -- train.py", "--time", "jobs have no time limit here"),
        ("--time=1:00:00 train.py", "--time", "jobs have no time limit here"),
        ("--partition gpu train.py", "--partition", "there are no partitions here, a cluster is one"),
        ("-p gpu train.py", "-p", "there are no partitions here, a cluster is one"),
        ("--array 1-3 train.py", "--array", "there are no job arrays here"),
        ("--dependency afterok:1 train.py", "--dependency", "jobs do not depend on others here"),
        ("--account me train.py", "--account", "there are no accounts here"),
        ("--qos high train.py", "--qos", "there are no qualities of service here"),
        ("-n 2 --mem 64G train.py", "--mem", "jobs have no memory limit here"),
    ],
)
def test_options_of_slurm_that_nothing_replaces_are_answered_with_the_page(
    line: str, option: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *line.split()]) == EXIT_USAGE
    page = "docs/from-slurm.md says what replaces Slurm's options"
    assert error_line(capsys) == f"no such option {option!r}: {answer}; {page}"


NODES = "says which nodes a cluster has"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-d train.py", "no such option '-d': the option is --detach"),
        ("--detach-run -- train.py", "no such option '--detach-run': the option is --detach"),
        ("-c vision -- train.py", "no such option '-c': the option is --cluster NAME"),
        (
            "--use-spot -- train.py",
            f"no such option '--use-spot': the setting purchase {NODES}, as in: cdk deploy -c purchase=spot",
        ),
        ("--gpus L4:1 train.py", f"no such option '--gpus': the setting instance_type {NODES}; {PROCESSES}"),
        ("--cloud aws train.py", "no such option '--cloud': there is one cloud, AWS; --region selects the region"),
        ("-y train.py", "no such option '-y': leave it out, run asks nothing before it starts a job"),
        (
            "--retry-until-up train.py",
            "no such option '--retry-until-up': dlcluster up --until 18:00 waits for nodes, run --wait for their GPUs",
        ),
        (
            "--idle-minutes-to-autostop 30 train.py",
            "no such option '--idle-minutes-to-autostop': the setting idle_stop pauses an idle cluster, as in: "
            "cdk deploy -c idle_stop=30m",
        ),
        (
            "--down train.py",
            "no such option '--down': the settings expires and expiry_action=delete remove a cluster at a time that "
            "you choose",
        ),
        ("-n exp1 train.py", "-n is the number of nodes, got 'exp1'; --name names the job"),
    ],
)
def test_options_of_sky_are_answered_with_ours_or_with_the_setting(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *line.split()]) == EXIT_USAGE
    assert error_line(capsys) == message
