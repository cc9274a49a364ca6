"""Test how launch parses its options into a job."""

from pathlib import Path

import pytest

from bootstrap.contract import CONNECTION_IDLE_VARIABLE
from launcher.errors import UsageError
from launcher.hosts.hostfile import Host
from launcher.options.parser import parse_options
from launcher.spec import RestartPolicy
from launcher.sync.request import Fetch, SyncRequest
from tests.launcher.options.parsing import GPUS, PATH, parse, slots

COUNT = "DEEPLEARNING_WORKERS_COUNT"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    workers = tmp_path / "workers"
    workers.write_text("deeplearning-worker1\ndeeplearning-worker2\ndeeplearning-worker3\n")
    return {PATH: str(workers), COUNT: "3", GPUS: "0"}


def test_nodes_variables_fill_in_what_is_left_out(environ: dict[str, str]) -> None:
    job = parse("python train.py", environ)
    assert job.hosts == tuple(Host(name=f"deeplearning-worker{slot}", slots=1) for slot in (1, 2, 3))
    assert not job.is_local
    assert job.command == ("python", "train.py")


def test_each_gpu_gets_one_rank(environ: dict[str, str]) -> None:
    assert slots("python x", environ | {GPUS: "8"}) == [8, 8, 8]
    assert slots("--nproc-per-node 2 python x", environ | {GPUS: "8"}) == [2, 2, 2]


def test_slots_override_gpus_and_the_command_line_overrides_slots(environ: dict[str, str], tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("one slots=4\ntwo\n")
    assert slots(f"-H {own} python x", environ | {GPUS: "2"}) == [4, 2]
    assert slots(f"-H {own} --nproc-per-node 3 python x", environ) == [3, 3]


def test_local_job_runs_all_ranks_on_this_machine(environ: dict[str, str]) -> None:
    assert parse("--launcher local -n 4 python x", environ).hosts == (Host(name="localhost", slots=4),)
    assert parse("--launcher local python x", {GPUS: "2"}).hosts == (Host(name="localhost", slots=2),)
    assert parse("--launcher local python x", {}).is_local


def test_num_servers_selects_mxnet_with_one_worker_per_machine(environ: dict[str, str]) -> None:
    job = parse("-n 2 -s 4 python x", environ | {GPUS: "8"})
    assert (job.framework, job.servers, [host.slots for host in job.hosts]) == ("mxnet", 4, [1, 1])
    asked = parse("--framework mxnet python x", environ | {GPUS: "8"})
    assert (asked.framework, asked.servers) == ("mxnet", 3)
    here = parse("--launcher local -n 2 -s 1 python x", environ)
    assert (here.framework, here.servers, here.hosts) == ("mxnet", 1, (Host(name="localhost", slots=2),))


def test_job_without_servers_uses_torch(environ: dict[str, str]) -> None:
    assert parse("python x", environ).framework == "torch"
    assert parse("--framework horovod python x", environ | {GPUS: "4"}).framework == "horovod"


def test_mxnets_variables_are_passed_only_to_mxnet(environ: dict[str, str]) -> None:
    exported = environ | {"PS_VERBOSE": "1", "DMLC_INTERFACE": "eth0", "OMP_NUM_THREADS": "2", "AWS_SECRET": "s"}
    mxnet = parse("-s 1 python x", exported).environment
    assert mxnet == {"PS_VERBOSE": "1", "DMLC_INTERFACE": "eth0", "OMP_NUM_THREADS": "2"}
    assert parse("--env OMP_NUM_THREADS:4 python x", exported).environment == {"OMP_NUM_THREADS": "4"}


def test_mpirun_starts_as_many_ranks_as_there_are_slots(environ: dict[str, str], tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("one slots=4\ntwo slots=4\n")
    job = parse(f"--launcher mpi -H {own} python x", environ)
    assert (job.framework, [host.slots for host in job.hosts]) == ("mpi", [4, 4])
    own.write_text("one:2222\n")
    with pytest.raises(UsageError, match="ports only from ssh's configuration, got one:2222"):
        parse(f"--launcher mpi -H {own} python x", environ)


def test_assignments_before_the_command_are_variables_as_in_a_shell(environ: dict[str, str]) -> None:
    assert parse("A=1 python x", environ).command == ("env", "A=1", "python", "x")
    assert parse("./a=b x", environ).command == ("./a=b", "x")


def test_assignments_before_a_quoted_line_are_variables(environ: dict[str, str]) -> None:
    line = "echo $A; python x"
    run = parse_options(["A=1", "B=2", line], environ=environ).command
    assert run == ("env", "A=1", "B=2", "/bin/bash", "-c", line)
    assert parse("A=1 x.py", environ).command == ("env", "A=1", "python", "-u", "x.py")
    assert parse_options(["A=1 echo x"], environ=environ).command == ("/bin/bash", "-c", "A=1 echo x")


def test_options_after_the_command_belong_to_the_command(environ: dict[str, str]) -> None:
    job = parse(f"-n 2 -H {environ[PATH]} python train.py --gpus -n 7 --network lenet -- --env", environ)
    assert [host.name for host in job.hosts] == ["deeplearning-worker1", "deeplearning-worker2"]
    assert job.command == ("python", "train.py", "--gpus", "-n", "7", "--network", "lenet", "--", "--env")


def test_sync_options_describe_the_files_to_copy(environ: dict[str, str]) -> None:
    job = parse("--sync-dst-dir a/b --sync-exclude *.pt --sync-s3 s3://bkt/p data --sync-timeout 60 python x", environ)
    assert job.sync == SyncRequest(
        directory="a/b",
        excludes=("*.pt",),
        fetches=(Fetch(source="s3://bkt/p", directory="data"),),
        timeout_s=60,
    )
    assert job.command == ("python", "x")
    assert parse("python x", environ).sync is None
    shared = parse("--sync-s3 s3://bkt/p data --sync-s3-shard python x", environ).sync
    assert shared == SyncRequest(fetches=(Fetch(source="s3://bkt/p", directory="data", is_sharded=True),))


def test_sync_option_without_a_directory_is_an_error(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="--sync-dst-dir must name a directory, got ''"):
        parse_options(["--sync-dst-dir", "", "x", "y"], environ=environ)


def test_two_dashes_end_launchs_options(environ: dict[str, str]) -> None:
    assert parse("-n 1 -- python x", environ).command == ("python", "x")


def test_job_takes_all_hosts_of_its_hosts_file(environ: dict[str, str], tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("one\ntwo\n")
    assert [host.name for host in parse(f"-H {own} hostname x", environ).hosts] == ["one", "two"]


def test_clusters_hosts_file_is_the_default(environ: dict[str, str]) -> None:
    assert len(parse("hostname x", {PATH: environ[PATH]}).hosts) == 3


def test_restart_options_set_restarts_and_minimum_nodes(environ: dict[str, str]) -> None:
    assert parse("x y", environ).restart_policy.max_restarts == 0
    policy = parse("-n 2 --max-restarts 3 x y", environ).restart_policy
    assert policy == RestartPolicy(max_restarts=3, min_nodes=2, rejoin_timeout_s=600)
    asked = parse("--max-restarts 3 --min-nodes 1 --rejoin-timeout 0 --grace 600 x y", environ)
    assert asked.restart_policy == RestartPolicy(max_restarts=3, min_nodes=1, rejoin_timeout_s=0)
    assert asked.grace_s == 600


def test_restart_waits_as_long_as_a_replacements_setup_may_take(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "node.json"
    monkeypatch.setattr("launcher.hosts.node_config.NODE_CONFIG_FILE", str(config))
    for text, seconds in (('{"setup_timeout_s": 900}', 900), ('{"setup_timeout_s": null}', 0), ("{}", 0)):
        config.write_text(text)
        policy = parse("--max-restarts 1 x y", environ).restart_policy
        assert (policy.rejoin_timeout_s, policy.setup_timeout_s) == (600, seconds)
    config.write_text('{"setup_timeout_s": 900}')
    policy = parse("--max-restarts 1 --rejoin-timeout 5 x y", environ).restart_policy
    assert (policy.rejoin_timeout_s, policy.setup_timeout_s) == (5, 0)


def test_env_takes_the_value_after_the_first_colon_or_equals_sign(environ: dict[str, str]) -> None:
    line = "--env A:b=c --env B=c:d --env EMPTY: --env NONE= --env HERE x y"
    environment = parse(line, environ | {"HERE": "v"}).environment
    assert environment == {"A": "b=c", "B": "c:d", "EMPTY": "", "NONE": "", "HERE": "v"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--bogus python x", "unknown option --bogus, supported: --"),
        ("--p3 python x", "unknown option --p3, supported: --"),
        ("--env-worker A:1 x y", "unknown option --env-worker, supported: --"),
        ("--max-restart 3 x y", "unknown option --max-restart, did you mean --max-restarts? supported: --"),
        ("--min_nodes=2 x y", "unknown option --min_nodes=2, did you mean --min-nodes? supported: --"),
        ("-np 3 -bind-to none python x", "-bind-to is not supported: leave it out: --launcher mpi gives mpirun what"),
        ("-np 3 -map-by slot python x", "-map-by is not supported: leave it out: --launcher mpi gives mpirun what"),
        ("-mca pml ob1 python x", "-mca is not supported: leave it out: --launcher mpi gives mpirun what"),
        ("-x NAME python x", "-x is not supported: --env KEY passes a variable of this shell on"),
        ("-H a,b x y", "cannot read the hosts file a,b: No such file or directory; -H names a file, one host per line"),
        ("-SH x python x", "unknown option -SH, supported: --"),
        ("--sync-exclude *.pt python x", "--sync-exclude requires --sync-dst-dir"),
        (
            "--sync-dst-dir d --sync-exclude [z-a] x y",
            "--sync-exclude and .launchignore take patterns as in a .gitignore, got '[z-a]'",
        ),
        ("--sync-s3 bucket/data d x y", "--sync-s3 must name s3://BUCKET/PREFIX, got 'bucket/data'"),
        ("--sync-s3-shard x y", "--sync-s3-shard requires --sync-s3"),
        ("--sync-timeout 5 x y", "--sync-timeout requires --sync-dst-dir or --sync-s3"),
        ("--sync-dst-dir d --sync-timeout 0 x y", "--sync-timeout must be a whole number of at least 1, got '0'"),
        ("--num python x", "unknown option --num, supported: "),
        ("--launcher sge python x", "--launcher must be one of ssh, local, mpi, got 'sge'"),
        ("--launcher yarn python x", "--launcher must be one of ssh, local, mpi, got 'yarn'"),
        ("--launcher slurm python x", "--launcher must be one of ssh, local, mpi, got 'slurm'"),
        (
            "--launcher local -H f python x",
            "-H cannot be combined with --launcher local, which uses no other machine, got 'f'",
        ),
        ("--launcher local -n 2 --nproc-per-node 2 x y", "-n and --nproc-per-node are the same with --launcher local"),
        ("-s 0 x y", "-s must be a whole number from 1 to 1024, got '0'"),
        (
            "-s 2 --framework torch x y",
            "-s requires --framework mxnet, which has parameter servers, got --framework torch",
        ),
        ("--framework caffe x y", "--framework must be one of torch, mxnet, horovod, got 'caffe'"),
        ("--framework mpi x y", "--framework must be one of torch, mxnet, horovod, got 'mpi'"),
        ("--framework mxnet --nproc-per-node 2 x y", "--nproc-per-node must be 1 with --framework mxnet, got 2"),
        (
            "--launcher mpi -s 2 x y",
            "--framework and -s need --launcher ssh or local: mpirun sets variables of its own",
        ),
        ("--framework mxnet --env DMLC_ROLE:worker x y", "--env must not set DMLC_ROLE, which the launcher sets for"),
        ("--launcher local -n 257 x y", "-n must be a whole number from 1 to 256, got '257'"),
        ("-n 4 python x", "-n must be at most 3, the nodes currently in the cluster, got 4"),
        ("--num-workers 4 x y", "--num-workers must be at most 3, the nodes currently in the cluster, got 4"),
        ("--num-workers=two x y", "--num-workers must be a whole number of at least 1, got 'two'"),
        ("-n 0 python x", "-n must be a whole number of at least 1, got '0'"),
        ("-n two python x", "-n must be a whole number of at least 1, got 'two'"),
        (f"-n {'7' * 5000} python x", "-n must be a whole number of at least 1, got '777777777777...7777777777777'"),
        (f"--nproc-per-node {'7' * 5000} x y", "--nproc-per-node must be a whole number from 1 to 256, got '7777"),
        ("-n", "argument -n/--num-workers: expected one argument"),
        ("--nproc-per-node 0 x y", "--nproc-per-node must be a whole number from 1 to 256, got '0'"),
        ("--env 1A:2 x y", "--env must name a variable (letters, digits and _, not starting with a digit), got '1A'"),
        ("--env =b x y", "--env must be KEY=VALUE or KEY, got '=b'"),
        ("--env NOT_SET x y", "--env NOT_SET passes on a variable that is not set here"),
        ("--env RANK:1 x y", "--env must not set RANK, which the launcher sets for --framework torch"),
        ("-H /no/such/file x y", "cannot read the hosts file /no/such/file: No such file or directory"),
        ("-H / x y", "cannot read the hosts file /: Is a directory"),
        ("--max-restarts -1 x y", "--max-restarts must be a whole number from 0 to 1000, got '-1'"),
        ("--max-restarts 1 --min-nodes 4 x y", "--min-nodes must be a whole number from 1 to 3, got '4'"),
        ("--max-restarts 1 -n 2 --min-nodes 3 x y", "--min-nodes must be a whole number from 1 to 2, got '3'"),
        ("--max-restarts 1 --min-nodes 0 x y", "--min-nodes must be a whole number from 1 to 3, got '0'"),
        (
            "--max-restarts 1 --rejoin-timeout 1m x y",
            "--rejoin-timeout must be a whole number from 0 to 86400, got '1m'",
        ),
        ("--min-nodes 2 x y", "--min-nodes requires --max-restarts"),
        ("--rejoin-timeout 9 x y", "--rejoin-timeout requires --max-restarts"),
        ("--grace 0 x y", "--grace must be a whole number from 1 to 600, got '0'"),
        ("--grace 601 x y", "--grace must be a whole number from 1 to 600, got '601'"),
        ("-n 2", "no command given, as in: launch python train.py"),
        ("", "no command given, as in: launch python train.py"),
    ],
)
def test_wrong_command_line_is_a_usage_error(line: str, message: str, environ: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line, environ)
    assert str(caught.value).startswith(message)


def test_machine_outside_a_cluster_is_reported_with_advice(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        parse("python x.py", {PATH: str(tmp_path / "workers")})
    assert str(caught.value) == (
        f"this machine is not a cluster node: {tmp_path}/workers does not exist; "
        "run launch on the master (dlcluster ssh); "
        "-H names a file of other hosts, --launcher local runs on this machine alone"
    )


def test_hosts_file_overrides_an_outdated_shell_variable(environ: dict[str, str]) -> None:
    for stale in ("1", "5"):
        assert len(parse("x y", environ | {COUNT: stale}).hosts) == 3


def test_connections_are_kept_unless_the_variable_is_0(environ: dict[str, str]) -> None:
    assert parse("python x", environ).connection_idle_s == 60
    assert parse("python x", environ | {CONNECTION_IDLE_VARIABLE: "0"}).connection_idle_s == 0
    assert parse("--launcher local python x", environ).connection_idle_s == 0
    assert parse("--detach python x", environ).connection_idle_s == 0


@pytest.mark.parametrize("asked", ["-1", "61", "long"])
def test_unusable_time_to_keep_connections_is_a_usage_error(asked: str, environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=rf"\$DEEPLEARNING_CONNECTION_IDLE_S must be .* got '?{asked}"):
        parse("python x", environ | {CONNECTION_IDLE_VARIABLE: asked})


def test_secret_option_takes_a_source_and_refuses_a_value(environ: dict[str, str]) -> None:
    job = parse("--secret A=ssm:/team/a --secret B=secretsmanager:hub python x", environ)
    assert (job.secrets, job.environment) == ({"A": "ssm:/team/a", "B": "secretsmanager:hub"}, {})
    for line, message in (
        ("A=abc123", r"^--secret must be KEY=SOURCE, where SOURCE is ssm:PARAMETER, .*, got another for A$"),
        ("abc123", r"^--secret must be KEY=SOURCE, where SOURCE is [^,]*, [^,]*, got another$"),
        ("A=ssm:/aws/service/x", "got another for A"),
        ("A=ssm:/a/*", "got another for A"),
        ("A=secretsmanager:arn:aws:secretsmanager:r:1:secret:x", "got another for A"),
        ("1A=ssm:a", "--secret must name a variable"),
        ("RANK=ssm:a", "--secret must not set RANK"),
        ("A=ssm:a --env A:b", "--secret A is given twice, or as --env too"),
        ("A=ssm:a --env A=b", "--secret A is given twice, or as --env too"),
    ):
        with pytest.raises(UsageError, match=message) as raised:
            parse(f"--secret {line} python x", environ)
        assert "abc123" not in str(raised.value)
