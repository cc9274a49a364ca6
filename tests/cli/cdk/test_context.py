"""Test how dlcluster reads the settings, like the CDK."""

import json
from pathlib import Path
from typing import Any

import pytest

from app import main as synthesize
from cli.cdk.context import read_context, read_props
from cli.errors import UsageError

REPOSITORY = Path(__file__).parents[3]


def write(directory: Path, app: Any, looked_up: Any = None) -> Path:
    (directory / "cdk.json").write_text(json.dumps(app))
    if looked_up is not None:
        (directory / "cdk.context.json").write_text(json.dumps(looked_up))
    return directory


def test_products_own_settings_are_read() -> None:
    props = read_props(read_context(REPOSITORY, ["worker_count=3", "tags=a=b"]))
    assert (props.worker_count, props.tags) == (3, {"a": "b"})


def test_precedence_is_command_line_app_lookups(tmp_path: Path) -> None:
    app = {"context": {"cluster": {"worker_count": 2}, "@aws-cdk/a": "app", "@aws-cdk/c": "app"}}
    write(tmp_path, app, {"@aws-cdk/a": "looked up", "ssm:account=1": "looked up"})
    context = read_context(tmp_path, ["@aws-cdk/c=word", "key_name=x=y"])
    assert (context["@aws-cdk/a"], context["@aws-cdk/c"], context["ssm:account=1"]) == ("app", "word", "looked up")
    props = read_props(context)
    assert (props.worker_count, props.key_name) == (2, "x=y")


def test_settings_at_the_top_level_of_cdk_json_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"cluster": {"worker_count": 2}, "context": {}})
    with pytest.raises(UsageError, match=r'cdk\.json has "cluster" at the top level, where it is ignored'):
        read_context(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert synthesize() == 2


def test_user_settings_are_overridden_per_name(tmp_path: Path, home: Path) -> None:
    user = {"key_name": "me", "worker_count": 5, "tags": {"team": "vision", "who": "me"}}
    own = {"cluster": user, "@aws-cdk/a": "user", "@aws-cdk/b": "user", "@aws-cdk/c": "user"}
    (home / ".cdk.json").write_text(json.dumps({"app": "x", "context": own}))
    app = {"context": {"cluster": {"worker_count": 2, "tags": {"who": "us"}}, "@aws-cdk/a": "app"}}
    context = read_context(write(tmp_path, app, {"@aws-cdk/b": "looked up"}))
    assert [context[f"@aws-cdk/{name}"] for name in "abc"] == ["app", "looked up", "user"]
    props = read_props(context)
    assert (props.worker_count, props.key_name, props.tags) == (2, "me", {"team": "vision", "who": "us"})


def test_non_object_replaces_user_settings(tmp_path: Path, home: Path) -> None:
    (home / ".cdk.json").write_text('{"context": {"cluster": {"key_name": "me"}}}')
    assert read_context(write(tmp_path, {"context": {"cluster": None}})) == {"cluster": None}


def test_wrong_file_of_the_user_is_a_usage_error(tmp_path: Path, home: Path) -> None:
    (home / ".cdk.json").write_text('{"context": "x"}')
    with pytest.raises(UsageError, match=r"\.cdk\.json must have an object as its context, got 'x'"):
        read_context(write(tmp_path, {}))


def test_null_context_is_empty(tmp_path: Path) -> None:
    assert read_context(write(tmp_path, {"context": None})) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cdk.json cannot be read as JSON"),
        ("[]", "cdk.json must be a JSON object, got []"),
        ('{"context": 1}', "cdk.json must have an object as its context, got 1"),
        ("[" * 100_000, "cdk.json cannot be read as JSON: it is nested too deeply"),
        (f"[{'1,' * 9999}1]", "cdk.json must be a JSON object, got [1, 1,"),
    ],
)
def test_wrong_cdk_json_is_a_short_usage_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "cdk.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_context(tmp_path)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


def test_directory_without_cdk_json_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no cdk\.json in .*: change to the directory where you run cdk deploy"):
        read_context(tmp_path)


@pytest.mark.parametrize("word", ["worker_count", "=3"])
def test_setting_that_is_no_pair_is_a_usage_error(tmp_path: Path, word: str) -> None:
    with pytest.raises(UsageError, match="-c must be name=value"):
        read_context(write(tmp_path, {}), [word])


def test_unknown_setting_is_reported_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="unknown setting 'worker-count', did you mean worker_count"):
        read_props({"worker-count": "3"})
