"""Test the cache of built directory trees."""

import os
import time
from pathlib import Path

import pytest

from local.cache import UNUSED_S, cached_tree, locked, recipe_hash


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "deeplearning-cdk"


def test_tree_is_built_once_and_removed_when_unused(cache: Path) -> None:
    builds: list[str] = []

    def build(tree: Path) -> None:
        builds.append(tree.name)
        (tree / "file").write_text("made")

    first = cached_tree("image", "a", build)
    assert cached_tree("image", "a", build) == first
    assert (first / "file").read_text() == "made"
    second = cached_tree("image", "b", build)
    assert len(builds) == 2
    assert first.exists()
    week_ago = time.time() - UNUSED_S - 1
    os.utime(first, (week_ago, week_ago))
    os.utime(second, (week_ago, week_ago))
    cached_tree("image", "b", build)  # used again
    cached_tree("image", "c", build)
    assert second.exists()
    assert not first.exists()


def test_failed_build_leaves_no_tree_that_looks_complete(cache: Path) -> None:
    def build(tree: Path) -> None:
        (tree / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cached_tree("image", "a", build)
    assert not (cache / "image-a").exists()


def test_recipe_hash_follows_contents_and_names(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "one").write_text("x")
    before = recipe_hash([recipe])
    assert recipe_hash([recipe]) == before
    (recipe / "one").rename(recipe / "two")
    assert recipe_hash([recipe]) != before
    assert recipe_hash([recipe], extra="endpoint") != recipe_hash([recipe])


def test_lock_of_another_process_times_out() -> None:
    refused = pytest.raises(TimeoutError, match="another process to make image")
    with locked("image"), refused, locked("image", timeout_s=0):
        pass
