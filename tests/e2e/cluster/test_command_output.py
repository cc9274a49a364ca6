"""Test every command's output on a running cluster, and its error without credentials, cluster or region.

The commands without a master are tested in tests/e2e/healing/test_healing.py.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from cli.command_group import COMMANDS
from cli.errors import EXIT_CREDENTIALS, EXIT_FAILED, EXIT_NO_CLUSTER, EXIT_USAGE, CredentialsError
from local.faults.clients import client
from local.run.startup import REGION
from tests.cli.command_lines import AMBIGUOUS_WITH_TWO, LINES, NEEDS_A_CLUSTER, prepare_command_line, prints_json
from tests.cli.moto_cluster import template
from tests.e2e.support.command_answers import Prompt, enter_project
from tests.e2e.support.deployed_cluster import NODES, STACK, DeployedCluster
from tests.e2e.support.guest_stack import stack_status
from tests.service_models import shared_models
from tests.waiting import wait_until

SECOND = "other"
WRONG_REGION = "us-west-2"
JOB_TIMEOUT_S = 60.0
DELETION_S = 120.0
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
INVALID = "The security token included in the request is invalid."
NOT_ENABLED = rf" \(or the region {REGION} is not enabled for the account\)"
TROUBLES = {
    "missing": "no AWS credentials: Unable to locate credentials",
    "expired": r"AWS refused \w+: ((ExpiredToken|ExpiredTokenException): The security token included in the request is "
    r"expired|RequestExpired: Request has expired\.)",
    "unknown": rf"AWS refused \w+: (InvalidClientTokenId|UnrecognizedClientException): {INVALID}{NOT_ENABLED}"
    rf"|AWS refused \w+: AuthFailure: AWS was not able to validate the provided access credentials{NOT_ENABLED}",
}
SETUP = f"cluster {STACK} has no setup: name one in cdk.json, then cdk deploy"
NO_TERMINAL = "cannot prompt without a terminal: use --yes"
NODE = r"master +i-\w+"
SUCCESSES = {
    "list": ("", rf"{STACK} +{NODES} +{STACK} +(CREATE|UPDATE)_COMPLETE"),
    "status": ("", rf"{STACK}: {NODES} of {NODES} nodes.*{NODE}"),
    "why": ("", rf"stack {STACK} is (CREATE|UPDATE)_COMPLETE, all {NODES} nodes"),
    "cost": ("", r"KIND +USD/HOUR +SPENT.*total +0\.\d\d"),
    "preflight": ("", rf"ok +stack +stack {STACK} is (CREATE|UPDATE)_COMPLETE"),
    "resume": ("", rf"{STACK} is running: {NODES} nodes.*{NODE}"),
    "resize": ("1 --no-deploy", "cdk.json has worker_count 1 now; to apply it, run: cdk deploy"),
    "extend": ("8h --no-deploy", r"cdk.json has expires \S+Z now; to apply it, run: cdk deploy"),
    "delete-bucket": ("", rf"BUCKET +CLUSTER +USED BY\n\S+ +{STACK} +{STACK}\n"),
    "delete-storage": ("", rf"no cluster has left a file system in {REGION}"),
    "jobs": ("", r"SUCCEEDED .*echo here"),
    "logs": ("", r"deeplearning-worker2 \[0\] here"),
    "push": ("", r"already has all|sent \d+ of"),
    "pull": ("master:project/train.py ../out", r"train.py: 1 file|out: 1 file"),
    "allow-ip": ("203.0.113.9/32", r"203\.0\.113\.9/32 +-"),
    "ssh-config": ("", r"Host deeplearning-master deeplearning-worker1\n +HostName"),
    "known-hosts": ("", r"deeplearning-worker3,i-\w+,10\.\S+ ssh-ed25519 "),
    "policy": ("", r'"Version": "2012-10-17"'),
    "completion": ("bash", r"_dlcluster_completion"),
}
"""Arguments and output of the commands that end nothing; "run" has a test of its own here, and starts the job."""
FACTS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "list": lambda found: [found["clusters"][0]["name"], found["clusters"][0]["created"]],
    "status": lambda found: [node["instance_id"] for node in found["nodes"]],
    "why": lambda found: [found["stack"]["name"], found["stack"]["status"], found["nodes"]],
    "cost": lambda found: [f"{found['usd_per_hour']:.2f}"],
    "preflight": lambda found: [finding["sentence"] for finding in found["findings"]],
    "resume": lambda found: [node["instance_id"] for node in found["nodes"]],
    "delete-bucket": lambda found: [bucket["name"] for bucket in found["buckets"]],
    "jobs": lambda found: [job["id"] for job in found["jobs"]],
    "allow-ip": lambda found: [address["cidr"] for address in found["addresses"]],
}
"""Facts of each JSON object that the text must contain."""
REFUSALS = {
    "stop": ("absent", EXIT_USAGE, "'absent' matches no job; the latest are: "),
    "tunnel": ("worker9 80", EXIT_USAGE, f"no node 'worker9' in cluster {STACK}; its nodes: master (i-"),
    "tensorboard": (
        "",
        EXIT_FAILED,
        "/opt/pytorch on the master has no tensorboard; install it with dlcluster ssh -- ",
    ),
    "jupyter": ("", EXIT_FAILED, "/opt/pytorch on the master has no jupyterlab; install it with dlcluster ssh -- "),
    "setup": ("", EXIT_FAILED, SETUP),
    "bake": ("--yes", EXIT_FAILED, SETUP),
    "ssh": ("worker9", EXIT_USAGE, f"no node 'worker9' in cluster {STACK}; its nodes: master (i-"),
    "ssm-proxy": (f"{STACK} worker9", EXIT_USAGE, f"no node 'worker9' in cluster {STACK}; its nodes: master (i-"),
}
"""Arguments, exit codes and errors of commands that need more than this cluster, or would end something. Their success:
tests/e2e/jobs, bake, private and test_dlcluster_commands.py."""
REFUSALS_AFTER_OUTPUT = {
    "pause": ("", NO_TERMINAL),
    "up": ("-c worker_count=5", NO_TERMINAL),
    "check": ("", "and a check would share its network: wait, or dlcluster stop "),
}
"""Arguments of the commands that print notes before they refuse, and the end of the error."""


def line_of(command: str, arguments: str) -> list[str]:
    return [command, *arguments.split()]


@pytest.fixture
def prompt(
    cluster: DeployedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Prompt]:
    enter_project(cluster.user, tmp_path, monkeypatch)
    with shared_models():
        yield Prompt(capture=capfd)


@pytest.fixture(scope="module")
def expired() -> dict[str, str]:
    """Return variables with temporary credentials whose time is over."""
    sts = boto3.client("sts", config=Config(parameter_validation=False))  # AWS grants at least 900 seconds
    issued = sts.get_session_token(DurationSeconds=1)["Credentials"]
    values = (issued["AccessKeyId"], issued["SecretAccessKey"], issued["SessionToken"])
    late = boto3.client(
        "sts", aws_access_key_id=values[0], aws_secret_access_key=values[1], aws_session_token=values[2]
    )

    def has_expired() -> bool:
        try:
            late.get_caller_identity()
        except ClientError as error:
            return error.response["Error"]["Code"] == "ExpiredToken"
        return False

    wait_until(has_expired, "the credentials to expire", timeout_s=JOB_TIMEOUT_S)
    return dict(zip(KEYS, values, strict=True))


@pytest.fixture(params=TROUBLES)
def credentials(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, expired: dict[str, str]) -> str:
    """Set the credentials of one trouble, and return how AWS or its SDK words it."""
    unknown = dict.fromkeys(KEYS[:2], "AKIAIOSFODNN7EXAMPLE")
    own = {"missing": {}, "expired": expired, "unknown": unknown}[request.param]
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    return TROUBLES[request.param]


@pytest.fixture(scope="module")
def second(cluster: DeployedCluster) -> Iterator[str]:
    """Create the stack of a second cluster: with its outputs and table, and no nodes.

    Its tests are the last ones here, because the other tests rely on a single cluster.
    """
    client("cloudformation").create_stack(StackName=SECOND, TemplateBody=template(SECOND, "ubuntu"))
    yield SECOND
    client("cloudformation").delete_stack(StackName=SECOND)
    wait_until(lambda: stack_status(SECOND) == "", "the second cluster's deletion", timeout_s=DELETION_S)


def settings(**values: Any) -> None:
    own = {"cluster_name": STACK, "instance_type": "c5.large", "key_name": "demo", **values}
    Path("cdk.json").write_text(json.dumps({"context": {"cluster": own}}))


def test_every_command_has_a_row() -> None:
    assert {*LINES, "preflight", "completion"} == COMMANDS.keys()
    assert {*SUCCESSES, *REFUSALS, *REFUSALS_AFTER_OUTPUT, "run"} == COMMANDS.keys()


def test_every_command_answers_on_a_running_cluster(prompt: Prompt, cluster: DeployedCluster) -> None:
    settings(worker_count=NODES - 1)
    done = prompt.run(["run", "--no-sync", "--", "echo", "here"])
    assert (done.code, done.out.count("[0] here\n")) == (0, NODES), done
    for command, (arguments, pattern) in SUCCESSES.items():
        words = line_of(command, arguments)
        answer = prompt.run(words)
        assert answer.code == 0, (command, answer)
        assert re.search(pattern, answer.out + answer.err, re.DOTALL), (command, answer)
        if prints_json(command):
            found = prompt.json(words)
            facts = FACTS[command](found) if command in FACTS else []
            assert [fact for fact in facts if fact not in answer.out] == [], (command, answer)
    prompt.run(["allow-ip", "203.0.113.9/32", "--remove"])
    hosts = prompt.run(["known-hosts"]).out
    assert all(instance_id in hosts for instance_id in cluster.addresses)
    for command, (arguments, code, start) in REFUSALS.items():
        failed = prompt.fails(line_of(command, arguments))
        assert failed[0] == code, (command, failed)
        assert failed[1].startswith(start), (command, failed)


def test_commands_that_end_nodes_ask_first_and_check_waits_for_the_job(prompt: Prompt) -> None:
    settings(zones=[f"{REGION}a", f"{REGION}b"])
    job = prompt.json(["run", "--no-sync", "--name", "held", "--", "sleep", "1000"])["job"]
    try:
        for command, (arguments, end) in REFUSALS_AFTER_OUTPUT.items():
            for words in (line_of(command, arguments), [command, "--json", *arguments.split()]):
                answer = prompt.run(words)
                assert (answer.code, answer.out) == (EXIT_FAILED if command == "check" else EXIT_USAGE, ""), answer
                assert end in answer.err.splitlines()[-1], answer
        assert f"job {job} runs and would end: sleep 1000" in prompt.run(["pause"]).err
    finally:
        stopped = prompt.json(["stop", "held"])
    assert stopped == {"version": 1, "cluster": STACK, "job": job, "state": "CANCELLED"}


@pytest.mark.parametrize("command", LINES)
def test_credentials_that_aws_refuses(prompt: Prompt, credentials: str, command: str) -> None:
    code, error = prompt.fails(prepare_command_line(command, region=REGION))
    assert code == EXIT_CREDENTIALS
    assert re.fullmatch(f"({credentials}): {CredentialsError.fix}", error), error


def test_preflight_finds_credentials_that_aws_refuses(prompt: Prompt, credentials: str) -> None:
    settings()
    answer = prompt.run(["preflight"])
    assert answer.code == EXIT_FAILED
    assert re.fullmatch(rf"problem  credentials +({credentials}): {CredentialsError.fix}\n", answer.out), answer
    [finding] = prompt.json(["preflight"], code=EXIT_FAILED)["findings"]
    assert (finding["level"], finding["fix"]) == ("problem", CredentialsError.fix)


@pytest.mark.parametrize("command", NEEDS_A_CLUSTER)
def test_no_such_cluster(prompt: Prompt, command: str) -> None:
    words = prepare_command_line(command, region=REGION, cluster="two")
    found = prompt.fails([words[0], *(["--cluster", "two"] if command in AMBIGUOUS_WITH_TWO else []), *words[1:]])
    assert found == (EXIT_NO_CLUSTER, f"no cluster 'two' in {REGION}; clusters there: {STACK}")
    code, error = Prompt(capture=prompt.capture, options=["--region", WRONG_REGION]).fails(words)
    assert code == EXIT_NO_CLUSTER
    assert error.startswith(f"no cluster in {WRONG_REGION} (--region or AWS_REGION selects another); ")


@pytest.mark.parametrize(
    ("command", "code_for_name", "sentence", "lists"),
    [
        ("list", EXIT_NO_CLUSTER, "no cluster{} in {}{}", "clusters"),
        ("delete-bucket", 0, "no cluster{} has made a bucket in {}", "buckets"),
        ("delete-storage", 0, "no cluster{} has left a file system in {}", "file_systems"),
    ],
)
def test_lists_are_empty_in_a_wrong_region_and_for_no_such_cluster(
    prompt: Prompt, command: str, code_for_name: int, sentence: str, lists: str
) -> None:
    for option, value, code, named, region, advice in (
        ("--region", WRONG_REGION, 0, "", WRONG_REGION, "; cdk deploy creates one"),
        ("--cluster", "two", code_for_name, " 'two'", REGION, ""),
    ):
        own = Prompt(capture=prompt.capture, options=[option, value])
        answer = own.run([command])
        assert (answer.code, answer.error) == (code, sentence.format(named, region, advice))
        assert own.json([command], code=code)[lists] == []


def test_why_and_up_in_a_wrong_region(prompt: Prompt) -> None:
    elsewhere = Prompt(capture=prompt.capture, options=["--region", WRONG_REGION])
    unknown = f"no stack {STACK} in {WRONG_REGION}, and none was deleted in the last 90 days"
    assert elsewhere.fails(["why", "--cluster", STACK]) == (EXIT_NO_CLUSTER, unknown)
    code, error = elsewhere.fails(prepare_command_line("up", region=REGION, cluster=STACK))
    assert code == EXIT_FAILED
    assert error.startswith(f"no zone in the setting zones offers g6.xlarge: {REGION}a, {REGION}b; dlcluster ")


@pytest.mark.parametrize("command", AMBIGUOUS_WITH_TWO)
def test_several_clusters(prompt: Prompt, second: str, command: str) -> None:
    expected = f"more than one cluster in {REGION}, choose with --cluster: {STACK}, {second}"
    assert prompt.fails(prepare_command_line(command, region=REGION)) == (EXIT_USAGE, expected)


def test_several_clusters_are_listed_and_one_is_chosen(prompt: Prompt, second: str) -> None:
    assert [cluster["name"] for cluster in prompt.json(["list"])["clusters"]] == [STACK, second]
    assert prompt.json(["status", "--cluster", STACK])["running_nodes"] == NODES
    empty = f"cluster {second} has no members yet: its master has not started"
    assert prompt.fails(["status", "--cluster", second]) == (EXIT_FAILED, empty)
