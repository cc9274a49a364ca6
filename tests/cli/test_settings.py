import json
from pathlib import Path
from typing import Any

import pytest

from cli.errors import UsageError
from cli.settings import read_context, read_props

REPOSITORY = Path(__file__).parents[2]


def write(directory: Path, app: Any, looked_up: Any = None) -> Path:
    (directory / "cdk.json").write_text(json.dumps(app))
    if looked_up is not None:
        (directory / "cdk.context.json").write_text(json.dumps(looked_up))
    return directory


def test_the_products_own_settings_are_read() -> None:
    props = read_props(read_context(REPOSITORY, ["worker_count=3", "tags=a=b"]))
    assert (props.worker_count, props.tags) == (3, {"a": "b"})


def test_the_command_line_goes_over_the_app_and_that_over_the_look_ups(tmp_path: Path) -> None:
    app = {"context": {"cluster": {"worker_count": 2}, "@aws-cdk/a": "app", "@aws-cdk/c": "app"}}
    write(tmp_path, app, {"@aws-cdk/a": "looked up", "ssm:account=1": "looked up"})
    context = read_context(tmp_path, ["@aws-cdk/c=word", "key_name=x=y"])
    assert (context["@aws-cdk/a"], context["@aws-cdk/c"], context["ssm:account=1"]) == ("app", "word", "looked up")
    props = read_props(context)
    assert (props.worker_count, props.key_name) == (2, "x=y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cdk.json cannot be read as JSON"),
        ("[]", "cdk.json must be a JSON object, got []"),
        ('{"context": 1}', "cdk.json must have an object as its context, got 1"),
    ],
)
def test_fails_when_cdk_json_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "cdk.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_context(tmp_path)
    assert message in str(caught.value)


def test_fails_where_there_is_no_app(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no cdk\.json in .*: go where you run cdk deploy"):
        read_context(tmp_path)


@pytest.mark.parametrize("word", ["worker_count", "=3"])
def test_fails_when_a_setting_is_no_pair(tmp_path: Path, word: str) -> None:
    with pytest.raises(UsageError, match="-c must be name=value"):
        read_context(write(tmp_path, {}), [word])


def test_fails_when_a_setting_cannot_be_used() -> None:
    with pytest.raises(UsageError, match="unknown setting 'worker-count', did you mean worker_count"):
        read_props({"worker-count": "3"})
