"""Test the page about JSON against the commands; a fixture compares every object that other tests let one print."""

from pathlib import Path

import click
import pytest

from cli.command_group import COMMANDS
from cli.output import print_json
from tests.cli import json_page
from tests.cli.json_page import documented_commands, documented_keys, undocumented_keys
from tests.cli.test_help import command_of


def test_page_has_a_row_for_each_command_with_json_and_no_other() -> None:
    with_json = {
        command for command in COMMANDS if any(option.name == "as_json" for option in command_of(command).params)
    }
    assert documented_commands() == with_json


def test_keys_of_another_row_count_where_the_page_refers_to_it() -> None:
    assert {"gpus", "durable", "capacity_block", "version"} <= documented_keys("status")
    assert "durable" not in documented_keys("pause")


def test_each_key_that_the_page_lacks_is_named() -> None:
    row = {"index": 1, "instance_id": "i-1", "color": "red"}
    assert {*undocumented_keys("up", {"version": 1, "nodes": [row], "mood": {"size": 2}})} == {"color", "mood", "size"}
    assert {*undocumented_keys("cost", {"forecast": {"24": 1.0}})} == set()


def test_command_that_prints_another_key_fails_its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(json_page.PAGE.read_text().replace("| `stop` | `cluster`, ", "| `stop` | "))
    monkeypatch.setattr(json_page, "PAGE", page)
    documented_keys.cache_clear()
    try:
        with click.Context(command_of("stop")), pytest.raises(AssertionError, match="cluster"):
            print_json(cluster="demo", job="1", state="FAILED")
    finally:
        documented_keys.cache_clear()
