"""Test the errors for settings with which AWS cannot be called."""

from pathlib import Path

import pytest
from botocore.exceptions import ClientError, CredentialRetrievalError, UnauthorizedSSOTokenError
from botocore.session import Session

from cli.errors import EXIT_CREDENTIALS, EXIT_FAILED
from cli.main import main
from tests.cli.moto_cluster import Deploy, error_line

FIX = "aws configure, aws sso login, or set AWS_PROFILE"
ANY = "--region, AWS_ENDPOINT_URL and its like, the profile"
CANNOT_BE_USED = f"the settings for AWS ({ANY}) cannot be used: "


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory in which to run cdk deploy."""
    (tmp_path / "cdk.json").write_text('{"context": {"cluster": {"cluster_name": "demo"}}}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_missing_region_is_reported_with_its_option(
    aws: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_REGION")
    assert main(["status"]) == 2
    assert error_line(capsys) == "no region given: use --region or set AWS_REGION"


def test_empty_region_variables_count_as_unset(
    aws: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "")
    assert main(["status"]) == 2
    assert error_line(capsys) == "no region given: use --region or set AWS_REGION"


def test_missing_credentials_exit_with_their_own_code(
    aws: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert main(["status"]) == EXIT_CREDENTIALS
    assert error_line(capsys) == f"no AWS credentials: Unable to locate credentials: {FIX}"


def test_aws_that_does_not_answer_is_reported_in_one_line(
    aws: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert main(["status"]) == 1
    assert error_line(capsys).startswith("cannot call AWS: Could not connect to the endpoint URL")


@pytest.mark.parametrize("command", ["status", "why", "ssh", "ssh-config", "known-hosts", "preflight"])
@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("AWS_ENDPOINT_URL", "localhost:5000", "Invalid endpoint: localhost:5000"),
        ("AWS_ENDPOINT_URL", "http://[::1", "Invalid IPv6 URL"),
        ("AWS_ENDPOINT_URL", "http://localhost:port", "Port could not be cast to integer value as 'port'"),
        ("AWS_REGION", "eu west", "Provided region_name 'eu west' doesn't match a supported format."),
        ("AWS_MAX_ATTEMPTS", "many", "invalid literal for int() with base 10: 'many'"),
    ],
)
def test_unusable_variable_is_reported_by_name(
    app: Path,
    aws: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    variable: str,
    value: str,
    reason: str,
) -> None:
    monkeypatch.setenv(variable, value)
    assert main([command]) == 2
    sentence = CANNOT_BE_USED.replace(ANY, variable) if repr(value) in reason else CANNOT_BE_USED
    assert error_line(capsys) == f"{sentence}{reason}"


def test_unknown_region_is_reported_with_advice(
    aws: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    advice = "check the region, the network, the proxy (HTTPS_PROXY) and AWS_ENDPOINT_URL"
    sentence = f"cannot call AWS: something else answers in place of the region narnia: {advice}"
    assert main(["status", "--region", "narnia"]) == 1
    assert error_line(capsys) == sentence
    monkeypatch.setenv("AWS_REGION", "narnia")
    assert main(["status"]) == 1
    assert error_line(capsys) == sentence


@pytest.mark.parametrize("region", ["us-esat-1", "us-east-1"])
def test_misspelled_region_is_named_with_the_close_ones(
    region: str, aws: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_REGION", region)
    question = "AWS does not answer in region 'us-esat-1' (did you mean us-west-1 or us-east-1?): check the region, "
    assert main(["status"]) == 1
    printed = error_line(capsys)
    assert printed.startswith(question) == (region == "us-esat-1")
    assert printed.startswith("cannot call AWS: Could not connect to the endpoint URL") == (region == "us-east-1")


def test_region_that_botocore_lacks_can_be_used(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy()
    monkeypatch.setattr(Session, "get_available_regions", lambda *_, **__: ["eu-west-2"])
    assert main(["list"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("profile", "code", "message"),
    [
        ("", EXIT_CREDENTIALS, "no AWS credentials: The config profile (me) could not be found"),
        ("[profile me]\nregion = eu west\n", 2, CANNOT_BE_USED),
        ("[profile me]\nretry_mode = often\n", 1, 'cannot call AWS: Invalid value provided to "mode"'),
        ('[profile me]\ncredential_process = "x\n', 2, CANNOT_BE_USED),
        ("[profile me\n", 1, "cannot call AWS: Unable to parse config file"),
    ],
)
def test_unusable_profile_is_reported_in_one_line(
    aws: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    profile: str,
    code: int,
    message: str,
) -> None:
    (tmp_path / "config").write_text(profile)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "me")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    if "region" in profile:
        monkeypatch.delenv("AWS_REGION")
    assert main(["status"]) == code
    assert error_line(capsys).startswith(message)


@pytest.mark.parametrize("command", ["status", "why", "ssh", "ssh-config", "known-hosts", "run -- true", "preflight"])
@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("ExpiredToken", "the token has expired: "),
        (
            "UnrecognizedClientException",
            "the token has expired (or the region eu-west-1 is not enabled for the account): ",
        ),
    ],
)
def test_every_command_explains_missing_credentials(
    app: Path,
    aws: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    code: str,
    sentence: str,
) -> None:
    def refuse(self: object, operation: str, parameters: object) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "the token has expired"}}, operation)

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", refuse)
    # Preflight reports this as a finding, because it checks more than credentials.
    assert main(command.split()) == (EXIT_FAILED if command == "preflight" else EXIT_CREDENTIALS)
    caught = capsys.readouterr()
    output = (caught.out + caught.err).removesuffix("dlcluster: 1 problem above\n")
    assert output.count("\n") == 1
    assert output.endswith(f": {code}: {sentence}{FIX}\n")


@pytest.mark.parametrize("error", [UnauthorizedSSOTokenError(), CredentialRetrievalError(provider="p", error_msg="no")])
def test_expired_login_is_explained(
    aws: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def refuse(self: object, operation: str, parameters: object) -> None:
        raise error

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", refuse)
    assert main(["status"]) == EXIT_CREDENTIALS
    output = error_line(capsys)
    assert output.startswith("the AWS credentials cannot be used: ")
    assert output.endswith(f": {FIX}")
