import json

import pytest

from bootstrap.config import SignalTarget, parse_config, parse_signal_target
from bootstrap.errors import ConfigError
from tests.bootstrap.conftest import config_values


def test_config_of_a_node_is_read() -> None:
    config = parse_config(json.dumps(config_values("master")))
    assert config.node_type == "master"
    assert config.bootstrap_timeout_s == 600
    assert config.role_id("worker") == "AROAWORKER"
    assert config.role_id("master") == "AROAMASTER"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"node_typ": "master"}, "unknown key 'node_typ', did you mean node_type"),
        ({"version": 2}, "version must be 1, got 2"),
        ({"node_type": "head"}, "node_type must be master or worker, got 'head'"),
        ({"bootstrap_timeout_s": "600"}, "bootstrap_timeout_s must be a whole number, got '600'"),
        ({"bootstrap_timeout_s": 0}, "bootstrap_timeout_s must be at least 1, got 0"),
        ({"table": ""}, "table must be text, got ''"),
        ({"version": True}, "version must be a whole number, got True"),
    ],
)
def test_fails_when_a_value_is_wrong(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        parse_config(json.dumps(config_values() | change))


def test_fails_when_a_key_is_missing() -> None:
    values = config_values()
    del values["table"]
    with pytest.raises(ConfigError, match="missing key 'table'"):
        parse_config(json.dumps(values))


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"'])
def test_fails_when_it_is_no_json_object(text: str) -> None:
    with pytest.raises(ConfigError, match="configuration must be"):
        parse_config(text)
    assert parse_signal_target(text) is None


def test_bad_config_may_still_say_where_to_signal() -> None:
    values = config_values() | {"version": 99}
    assert parse_signal_target(json.dumps(values)) == SignalTarget(
        region="eu-west-1", stack_id="digits-stack", signal_resource="WorkerGroup"
    )
