"""Check the name of an environment, and the machines that cannot have one."""

import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap.errors import MxnetEnvironmentError
from bootstrap.mxnet_environment.recipe import CONTENTS, Recipe, recipe_for_this_machine

RECIPE = Recipe(name="horovod", python=(3, 11), machine="x86_64", libc="glibc2.36")


def test_each_recipe_has_a_different_key() -> None:
    others = [
        replace(RECIPE, name="mxnet"),
        replace(RECIPE, python=(3, 10)),
        replace(RECIPE, libc="glibc2.35"),
        replace(RECIPE, machine="aarch64"),
    ]
    assert len({RECIPE.key, *(other.key for other in others)}) == 5


def test_change_of_a_lock_file_or_of_the_patches_changes_the_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changed = tmp_path / "changed"
    changed.write_text("horovod==0.28.2")
    keys = {RECIPE.key}
    for name in ("HOROVOD_SOURCE", "BUILD_TOOLS", "MXNET_PATCHES"):
        with monkeypatch.context() as patch:
            patch.setattr(f"bootstrap.mxnet_environment.recipe.{name}", changed)
            keys.add(RECIPE.key)
    assert len(keys) == 4


@pytest.mark.parametrize("name", CONTENTS)
def test_every_wheel_is_pinned_with_hashes_for_each_python(name: str) -> None:
    for path in replace(RECIPE, name=name).requirements:
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        pins = [line for line in lines if not line.startswith(" ")]
        assert all("==" in pin for pin in pins)
        assert all("--hash=sha256:" in line for line in lines if line not in pins)
        # There is one wheel of compiled Python modules per Python version.
        for compiled in ("numpy", "cffi", "pyyaml", "charset-normalizer"):
            for index in (i for i, line in enumerate(lines) if line.startswith(f"{compiled}==")):
                assert [line.startswith(" ") for line in lines[index + 1 : index + 4]] == [True, True, True]


def test_unsupported_python_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 13, 1))
    with pytest.raises(MxnetEnvironmentError, match=r"^MXNet needs Python 3\.10, 3\.11, 3\.12, got 3\.13$") as failure:
        recipe_for_this_machine("mxnet")
    assert failure.value.short == "no MXNet for Python 3.13"


def test_unsupported_architecture_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(MxnetEnvironmentError, match=r"^MXNet needs x86_64, got aarch64$"):
        recipe_for_this_machine("mxnet")


def test_python_of_ubuntu_24_04_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 12, 3))
    assert "-py3.12-" in recipe_for_this_machine("horovod").key
