"""Test the parsing of a node's configuration."""

import json

import pytest

from bootstrap.config import SignalTarget, parse_config, parse_signal_target
from bootstrap.errors import ConfigError
from tests.bootstrap.simulated_node import config_values


def test_config_of_a_node_is_read() -> None:
    config = parse_config(json.dumps(config_values("master")))
    assert config.node_type == "master"
    assert config.bootstrap_timeout_s == 600
    assert config.role_id("worker") == "AROAWORKER"
    assert config.role_id("master") == "AROAMASTER"


@pytest.mark.parametrize(
    "change",
    [
        {"min_nodes": 1, "gpu_count": 0},
        {"min_nodes": None, "gpu_count": None},
        {"address": "203.0.113.2", "address_allocation": "eipalloc-1"},
        {"fails_deploy": False},
    ],
)
def test_config_accepts_values_that_the_stack_leaves_open(change: dict[str, object]) -> None:
    config = parse_config(json.dumps(config_values("master") | change))
    assert {name: getattr(config, name) for name in change} == change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"node_typ": "master"}, "unknown key 'node_typ', did you mean node_type"),
        ({"version": 2}, "version must be 1, got 2"),
        ({"node_type": "head"}, "node_type must be master or worker, got 'head'"),
        ({"bootstrap_timeout_s": "600"}, "bootstrap_timeout_s must be a whole number, got '600'"),
        ({"bootstrap_timeout_s": 0}, "bootstrap_timeout_s must be at least 1, got 0"),
        ({"table": ""}, "table must be text, got ''"),
        ({"fails_deploy": 1}, "fails_deploy must be true or false, got 1"),
        ({"fails_deploy": None}, "fails_deploy must be true or false, got None"),
        ({"min_nodes": 0}, "min_nodes must be at least 1, got 0"),
        ({"min_nodes": "2"}, "min_nodes must be a whole number, got '2'"),
        ({"efa_interfaces": -1}, "efa_interfaces must be at least 0, got -1"),
        ({"gpu_count": -1}, "gpu_count must be at least 0, got -1"),
        ({"gpu_count": True}, "gpu_count must be a whole number, got True"),
        ({"address": ""}, "address must be text, got ''"),
        ({"group": None}, "group must be text, got None"),
        (
            {"address": "203.0.113.2"},
            "address and address_allocation must be set together or not at all",
        ),
        (
            {"address_allocation": "eipalloc-1"},
            "address and address_allocation must be set together or not at all",
        ),
        ({"version": True}, "version must be a whole number, got True"),
    ],
)
def test_wrong_value_is_refused_by_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        parse_config(json.dumps(config_values() | change))


def test_missing_key_is_named_in_the_error() -> None:
    values = config_values()
    del values["table"]
    with pytest.raises(ConfigError, match="missing key 'table'"):
        parse_config(json.dumps(values))


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"'])
def test_text_that_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="configuration must be"):
        parse_config(text)
    assert parse_signal_target(text) is None


def test_bad_config_may_still_say_where_to_signal() -> None:
    values = config_values() | {"version": 99}
    assert parse_signal_target(json.dumps(values)) == SignalTarget(
        region="eu-west-1", stack_id="digits-stack", signal_resource="WorkerGroup"
    )


def test_bad_config_of_an_optional_node_sends_no_signal() -> None:
    assert parse_signal_target(json.dumps(config_values() | {"version": 99, "fails_deploy": False})) is None
