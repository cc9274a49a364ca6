"""Test that changing one setting of cdk.json changes nothing else."""

import json
import os
from pathlib import Path

import pytest

from cli.cdk.settings_file import with_setting, write_setting
from cli.errors import UsageError

TEXT = """\
{
  "app": "python3 app.py",
  "context": {
    "cluster": {
      "cluster_name": "a\\u00e9}",   "worker_count":\t1 ,
      "tags": {"worker_count": "9"}
    },
    "@aws-cdk/x": [ 1,2 ]
  }
}
"""


def test_only_the_value_of_a_setting_changes() -> None:
    assert with_setting(TEXT, "worker_count", 12) == TEXT.replace("\t1 ,", "\t12 ,")


def test_new_setting_is_appended_to_the_cluster() -> None:
    old = '"tags": {"worker_count": "9"}'
    assert with_setting(TEXT, "expires", "x") == TEXT.replace(old, f'{old},\n      "expires": "x"')


def test_setting_in_the_context_overrides_the_cluster_object() -> None:
    text = '{"context": {"worker_count": 3, "cluster": {"worker_count": 1}}}'
    assert with_setting(text, "worker_count", 5) == text.replace("3", "5")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", '{"context": {"cluster": {"n": 1}}}'),
        ('{ "a": 1 }', '{ "a": 1, "context": {"cluster": {"n": 1}} }'),
        ('{"context": { }}', '{"context": {"cluster": {"n": 1}}}'),
        ('{"context": {"cluster": {}}}\n', '{"context": {"cluster": {"n": 1}}}\n'),
        ('{"context": {"cluster": {"n": 2, "n": 3}}}', '{"context": {"cluster": {"n": 2, "n": 1}}}'),
    ],
)
def test_missing_objects_of_the_file_are_added(text: str, expected: str) -> None:
    assert with_setting(text, "n", 1) == expected
    assert json.loads(expected)["context"]["cluster"]["n"] == 1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"context": 3}', '{"context": {"cluster": [1]}}', '{"a" 1}'])
def test_unexpected_file_is_refused_and_left_unchanged(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cdk.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="cannot set n in "):
        write_setting(path, "n", 1)
    assert path.read_text() == text


def test_file_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "real.json", tmp_path / "cdk.json"
    path.write_text(TEXT)
    path.chmod(0o640)
    link.symlink_to(path)
    write_setting(link, "worker_count", 4)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_text() == TEXT.replace("\t1 ,", "\t4 ,")

    def interrupt(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_setting(link, "worker_count", 5)
    assert [entry.name for entry in sorted(tmp_path.iterdir())] == ["cdk.json", "real.json"]
    assert '"worker_count":\t4 ,' in path.read_text()
