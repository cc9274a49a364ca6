"""Test dlcluster's command line: status, and the errors of all commands."""

import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from bootstrap.contract import VERSION
from cli.errors import EXIT_NO_CLUSTER, EXIT_USAGE
from cli.main import main
from stacks.missing_package import missing_message
from tests.cli.moto_cluster import KEY, REGION, Deploy, error_line, put_membership, set_addresses

PROGRAM = Path(__file__).parents[2] / "bin" / "dlcluster"


def test_status_lists_the_nodes_in_index_order(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = deploy().instance_ids
    boto3.client("ec2", region_name=REGION).stop_instances(InstanceIds=[third])
    assert main(["status"]) == 0
    summary, head, *rows, last = capsys.readouterr().out.splitlines()
    assert summary == "demo: 2 of 3 nodes, generation 7"
    assert head.split() == ["INDEX", "NODE", "INSTANCE", "TYPE", "ZONE", "PRIVATE", "PUBLIC", "STATE"]
    zone = rows[0].split()[4]
    assert zone.startswith(REGION)
    assert [row.split() for row in rows] == [
        ["1", "master", first, "c5.large", zone, "10.0.0.10", "203.0.113.5", "running"],
        ["2", "worker2", second, "c5.large", zone, "10.0.1.20", "-", "running"],
        ["3", "worker3", third, "c5.large", zone, "10.0.1.30", "-", "stopped"],
    ]
    assert last == "1 of 3 nodes missing: 3 have joined, 2 of these are running (dlcluster why shows more)"


def test_instance_unknown_to_ec2_is_reported_as_terminated(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    moto_cluster = deploy()
    put_membership(
        moto_cluster.table,
        [moto_cluster.instance_ids[0], "i-0123456789abcdef0"],
        private=["10.0.0.10", "10.0.1.9"],
        host_keys=[KEY, KEY],
    )
    assert main(["status"]) == 0
    assert capsys.readouterr().out.splitlines()[-3].split() == [
        "2", "worker2", "i-0123456789abcdef0", "-", "-", "10.0.1.9", "-", "gone",
    ]  # fmt: skip


def test_missing_cluster_exits_with_its_own_code(aws: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == EXIT_NO_CLUSTER
    sentence = (
        "no cluster in eu-west-1 (--region or AWS_REGION selects another); cdk deploy creates one, "
        "dlcluster why --cluster NAME explains a failed deploy"
    )
    assert error_line(capsys) == sentence


def test_region_of_the_option_is_searched_and_named(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    deploy()
    assert main(["--region", "us-east-2", "status"]) == EXIT_NO_CLUSTER
    assert error_line(capsys).startswith("no cluster in us-east-2 (--region or AWS_REGION selects another); ")


def test_master_that_has_not_started_is_reported(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    moto_cluster = deploy()
    boto3.client("dynamodb", region_name=REGION).delete_item(
        TableName=moto_cluster.table, Key={"id": {"S": "membership"}}
    )
    assert main(["status"]) == 1
    assert error_line(capsys) == "cluster demo has no members yet: its master has not started"


def test_newer_agents_record_is_read(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    moto_cluster = deploy()
    put_membership(moto_cluster.table, moto_cluster.instance_ids[:1], private=["10.0.0.10"], host_keys=[KEY], version=3)
    assert main(["status"]) == 0
    assert moto_cluster.instance_ids[0] in capsys.readouterr().out


def test_record_of_an_older_version_is_refused(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    moto_cluster = deploy()
    put_membership(moto_cluster.table, moto_cluster.instance_ids[:1], private=["10.0.0.10"], host_keys=[KEY], version=1)
    assert main(["status"]) == 1
    assert "record version must be a whole number from 2 to 1000000000, got '1'" in error_line(capsys)


def test_unknown_node_is_reported_with_the_known_ones(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = deploy().instance_ids
    assert main(["ssh", "worker9"]) == 2
    listed = f"master ({first}), worker2 ({second}), worker3 ({third})"
    advice = "a command goes after --, as in: dlcluster ssh -- uptime"
    assert error_line(capsys) == f"no node 'worker9' in cluster demo; its nodes: {listed}; {advice}"


def test_master_without_public_address_is_reported(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    moto_cluster = deploy()
    set_addresses(moto_cluster.instance_ids[0], private="10.0.0.10", public=None)
    assert main(["ssh-config"]) == 1
    assert error_line(capsys) == f"the master {moto_cluster.instance_ids[0]} has no public address"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fly", "unknown command 'fly'; available commands: list, status, check, "),
        ("stats", "unknown command 'stats': did you mean status?"),
        ("stat", "unknown command 'stat': did you mean status?"),
        ("pau", "unknown command 'pau': did you mean pause?"),
        ("allow", "unknown command 'allow': dlcluster allow-ip lets an address reach the SSH port"),
        ("sto", "unknown command 'sto': did you mean stop?"),
        ("ssh-confg", "unknown command 'ssh-confg': did you mean ssh-config?"),
        ("--regoin x status", "no such option '--regoin'. Did you mean '--region'?"),
        ("status --all", "no such option '--all'"),
        ("status --clus x", "no such option '--clus'. Did you mean '--cluster'?"),
        ("status more", "unexpected argument 'more'; use --cluster NAME to select a cluster"),
        (
            "jobs launch -n exp1 -- train.py",
            "jobs has no subcommand 'launch': dlcluster run --durable --detach -- train.py starts a job that outlives",
        ),
        ("jobs cancel 1", "jobs has no subcommand 'cancel': dlcluster stop ID stops a job"),
        ("ssh worker2 hostname", "unexpected argument 'hostname'; a command goes after --"),
        ("down", "unknown command 'down': cdk destroy removes a cluster, in the directory with its cdk.json"),
        ("cancel x", "unknown command 'cancel': dlcluster stop ends a job, cdk destroy removes a cluster"),
        ("nodes", "unknown command 'nodes': dlcluster status lists the nodes"),
        ("update-cluster", "unknown command 'update-cluster': cdk deploy creates or updates a cluster"),
        ("autostop -i 30", "unknown command 'autostop': the setting idle_stop, such as 30m, pauses an idle cluster"),
        (
            "autodown",
            "unknown command 'autodown': the settings expires and expiry_action=delete remove a cluster at a time that",
        ),
        (
            "show-gpus",
            "unknown command 'show-gpus': docs/start/costs.md lists instance types with their GPUs and prices",
        ),
        (
            "sky launch x.yaml",
            "unknown command 'sky': cdk deploy creates a cluster, dlcluster run starts a job; docs/from-skypilot.md",
        ),
        (
            "pcluster create-cluster",
            "unknown command 'pcluster': cdk deploy creates a cluster, dlcluster run starts a job; docs/from-slurm.md",
        ),
        ("srun -N 2 hostname", "unknown command 'srun': write dlcluster run -n 2 -- hostname"),
        ("srun --nodes=2 x.py -N 3", "unknown command 'srun': write dlcluster run -n 2 -- x.py -N 3"),
        ("srun hostname", "unknown command 'srun': write dlcluster run -- hostname"),
        ("srun -p gpu x.py", "unknown command 'srun': dlcluster run -- train.py runs train.py on all nodes"),
        ("srun -N 2-4 x.py", "unknown command 'srun': dlcluster run -- train.py runs train.py on all nodes"),
        ("srun -N", "unknown command 'srun': dlcluster run -- train.py runs train.py on all nodes"),
        ("drain", "unknown command 'drain'; available commands: list, "),
        ("paus", "unknown command 'paus': did you mean pause?"),
        ("launch python x.py", "unknown command 'launch': dlcluster run -- train.py runs train.py on all nodes"),
        ("pull", "missing argument 'REMOTE', as in: dlcluster pull job/out ../out"),
        ("tunnel 8080", "missing argument 'PORT', as in: dlcluster tunnel master 6006"),
        ("tunnel master x", "invalid value for 'PORT': 'x' is not a whole number, as in: dlcluster tunnel master 6006"),
        ("resize", "missing argument 'WORKERS', as in: dlcluster resize 3"),
        ("resize two", "invalid value for 'WORKERS': 'two' is not a whole number, as in: dlcluster resize 3"),
        ("resize --worker-count 2", "no such option '--worker-count': it is the argument, as in: dlcluster resize 3"),
        ("preflight --worker-count 2", "no such option '--worker-count': use -c worker_count=2"),
        ("up --worker-count=2", "no such option '--worker-count': use -c worker_count=2"),
        ("up --cluster-name --yes", "no such option '--cluster-name': use -c cluster_name=..."),
        ("up --ssh_location 192.0.2.0/24", "no such option '--ssh_location': use -c ssh_location=192.0.2.0/24"),
        ("up --private", "no such option '--private': use -c private=true"),
        ("up --spot", "no such option '--spot': use -c purchase=spot"),
        ("bake --workers 2", "no such option '--workers': use -c worker_count=2"),
        ("up --frequency 2", "no such option '--frequency'"),
        ("status --private", "no such option '--private': private is a setting, as in: cdk deploy -c private=true"),
        ("status --cluster-name demo", "no such option '--cluster-name'. Did you mean '--cluster'?"),
        (
            "run --spot -- x.py",
            "no such option '--spot': the setting purchase says which nodes a cluster has, as in: cdk ",
        ),
        ("run --secret A=value -- x.py", "--secret must be KEY=SOURCE, where SOURCE is ssm:PARAMETER, "),
        ("run --env 1=A -- x.py", "--env must be KEY=VALUE or KEY, got the key '1'"),
        ("run --env NOT_SET -- x.py", "--env NOT_SET passes on a variable that is not set here"),
        ("run --env", "option '--env' requires an argument"),
        ("run -x A=1 -- x.py", "no such option '-x': --env KEY=VALUE sets a variable, --env KEY passes on one of "),
        ("run -m my.train", "no such option '-m': a module goes after python, as in: dlcluster run -- python -m my.tr"),
        ("run --nprocs_per_node 8 -- x.py", "no such option '--nprocs-per-node'. Did you mean '--nproc-per-node'?"),
        ("run -N 3 x.py", "no such option '-N': the number of nodes is -n"),
        ("run --num-nodes 3 x.py", "no such option '--num-nodes': the number of nodes is -n"),
        ("run --json -- x.py", "--json requires --detach: without it the job's output is printed"),
        (
            "run --detach -- launch x.py",
            "options of run do not apply to launch: write launch's own after the word launch",
        ),
        ("run", "no command given, as in: dlcluster run -- train.py --lr 0.1"),
        ("status -- x", "status takes no command, got '-- x'"),
        ("preflight -c", "option '-c' requires an argument"),
        ("status -c a=b", "no such option '-c'"),
        ("completion", "missing argument '{bash|zsh|fish}'"),
        ("completion tcsh", "invalid value for '{bash|zsh|fish}': 'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_wrong_command_line_is_a_usage_error(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert error_line(capsys).startswith(message)


def test_missing_identity_is_a_usage_error(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    deploy()
    assert main(["ssh-config", "-i", "/no/such/key"]) == 2
    assert error_line(capsys) == "--identity must be a private key file, got '/no/such/key'"


def test_program_runs_by_its_path(deploy: Deploy, aws: dict[str, str], tmp_path: Path) -> None:
    deploy()
    link = tmp_path / "dlcluster"
    link.symlink_to(PROGRAM)
    found = subprocess.run(
        [sys.executable, link, "status"], env=aws, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("demo: 3 of 3 nodes")


def test_version_option_prints_the_projects_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dlcluster {VERSION}\n"
    assert f'\nversion = "{VERSION}"\n' in (PROGRAM.parents[1] / "pyproject.toml").read_text()


@pytest.mark.parametrize("missing", ["botocore", "paramiko"])
def test_inactive_environment_is_reported_with_advice(
    missing: str, deploy: Deploy, aws: dict[str, str], tmp_path: Path
) -> None:
    deploy()
    # The message of a Python without it.
    (tmp_path / f"{missing}.py").write_text(f"raise ModuleNotFoundError(name={missing!r})\n")
    found = subprocess.run(
        [sys.executable, PROGRAM, "run", "--", "true"], env={**aws, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (
        1,
        f"dlcluster: {missing_message(missing)}\n",
    )


def test_misspelled_launch_gets_advice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lauch"]) == EXIT_USAGE
    assert (
        capsys.readouterr().err
        == "dlcluster: unknown command 'lauch': dlcluster run -- train.py runs train.py on all nodes\n"
    )
