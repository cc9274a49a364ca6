"""Test how a node reads secrets, with a stand-in that answers like the aws command line."""

import json
import sys
from pathlib import Path

import pytest

from launcher.errors import LaunchError
from launcher.runner.secret_values import read_secrets

VALUE = 'k3y "quoted"\nsecond line ü'
ARN = "secretsmanager:arn:aws:secretsmanager:eu-west-1:123456789012:secret:team/hub-AbCdEf"
AWS = """\
import json, os, sys
asked = {"words": sys.argv[1:], "environ": dict(os.environ)}
with open(os.environ["ASKED"], "a") as file:
    file.write(json.dumps(asked) + "\\n")
sys.stdout.write(os.environ["ANSWER"])
sys.stderr.write(os.environ["PROBLEM"])
sys.exit(254 if os.environ["PROBLEM"] else 0)
"""


class Service:
    """The service's answers, and the requests that it received."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._asked, self._monkeypatch = directory / "asked", monkeypatch
        program = directory / "aws"
        program.write_text(f"#!{sys.executable} -S\n{AWS}")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
        monkeypatch.setenv("ASKED", str(self._asked))
        self.answers(VALUE)

    def answers(self, value: object, *, problem: str = "") -> None:
        self._monkeypatch.setenv("ANSWER", "" if problem else json.dumps(value))
        self._monkeypatch.setenv("PROBLEM", problem)

    def refuses(self, code: str, message: str) -> str:
        """Return a node's message about an error."""
        self.answers("", problem=f"\nAn error occurred ({code}) when calling the GetX operation: {message}\n")
        with pytest.raises(LaunchError) as raised:
            read_secrets({"KEY": "ssm:/team/wandb"})
        assert "\n" not in str(raised.value)
        return str(raised.value)

    def asked(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self._asked.read_text().splitlines()]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    return Service(tmp_path, monkeypatch)


def test_secret_value_arrives_unchanged_after_one_call(service: Service) -> None:
    assert read_secrets({"A": "ssm:/team/wandb", "B": "ssm:/team/wandb"}) == {"A": VALUE, "B": VALUE}
    [asked] = service.asked()
    assert str(asked["words"]).startswith("['ssm', 'get-parameter', '--name=/team/wandb', '--with-decryption'")
    assert read_secrets({"A": ARN, "B": "secretsmanager:team/hub"}) == {"A": VALUE, "B": VALUE}
    words = sorted(str(request["words"]) for request in service.asked()[1:])
    assert f"--secret-id={ARN.partition(':')[2]}" in words[0]
    assert "'--region', 'eu-west-1'" in words[0]
    assert "'--secret-id=team/hub'" in words[1]


def test_nodes_role_reads_and_not_the_users_keys(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "the-users")
    read_secrets({"A": "ssm:wandb"})
    environ = service.asked()[0]["environ"]
    assert isinstance(environ, dict)
    assert {name: text for name, text in environ.items() if "the-users" in text or "null" in text} == {
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_ENDPOINT_URL": "the-users",
    }


def test_throttled_call_is_retried_beyond_the_users_setting(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    read_secrets({"A": "ssm:wandb"})
    environ = service.asked()[0]["environ"]
    assert isinstance(environ, dict)
    assert (environ["AWS_RETRY_MODE"], environ["AWS_MAX_ATTEMPTS"]) == ("standard", "10")


def test_secret_error_names_the_source_and_a_fix(service: Service) -> None:
    who = "User: arn:aws:sts::1:assumed-role/R/i-1 is not authorized to perform:"
    why = "because no identity-based policy allows it"
    add = "add ssm:/team/wandb to secrets in cdk.json, then cdk deploy"
    denied = "AccessDeniedException"
    assert service.refuses("ParameterNotFound", "") == "ssm:/team/wandb: is not there"
    on = f"{who} ssm:GetParameter on resource: arn:aws:ssm:r:1:parameter/team/wandb"
    assert service.refuses(denied, f"{on} {why}") == f"ssm:/team/wandb: this node may not read it: {add}"
    assert "a policy denies it" in service.refuses(denied, f"{on} with an explicit deny in an identity-based policy")
    for message in (f"{who} kms:Decrypt on resource: arn:aws:kms:r:1:key/1 {why}", "Access to KMS is not allowed"):
        assert "name the key's ARN in secret_keys of cdk.json" in service.refuses(denied, message)
    gone = f"{who} secretsmanager:GetSecretValue on resource: team/hub {why}"
    assert service.refuses(denied, gone).startswith("ssm:/team/wandb: does not exist")
    assert service.refuses("Throttled", "slow\ndown") == "ssm:/team/wandb: Throttled: slow down"
    service.answers("", problem="Unable to locate credentials")
    with pytest.raises(LaunchError, match=r"^ssm:x: Unable to locate credentials$"):
        read_secrets({"A": "ssm:x"})


@pytest.mark.parametrize("value", [None, 7, "with\0nul"])
def test_value_that_cannot_be_a_variable_is_refused(service: Service, value: object) -> None:
    service.answers(value)
    with pytest.raises(LaunchError, match=r"^ssm:x: must be text without NUL characters"):
        read_secrets({"A": "ssm:x"})


def test_secret_lookup_fails_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "aws"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(LaunchError, match=r"^ssm:x: no answer in time"):
        read_secrets({"A": "ssm:x"}, timeout_s=0.0)
