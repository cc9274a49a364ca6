"""Test that patterns mean the same as in git."""

import subprocess
from pathlib import Path

import pytest

from launcher.errors import UsageError
from launcher.sync.ignore import Ignore

PATHS = (
    "a", "a.pt", "b/a.pt", "b/c/a.pt", "data/1", "src/data/1", "src/x.py", "src/deep/er/x.py", "#a", "!a", "a b ",
    "x[1]", "x1", "-", "build", "b/build/o", "nested/foo/bar/baz",
)  # fmt: skip
PATTERNS = (
    "*.pt", "/a.pt", "b/*.pt", "b/**", "**/a.pt", "data/", "/data/", "data", "src/**/x.py", "**/data/**", "a?pt",
    "*.[op]t", "*.[!p]t", "x[1]", "x\\[1\\]", "\\#a", "# comment", "\\!a", "", "a b\\ ", "build/", "src/*", "*", "[]-]",
    "foo/", "nested/**/baz", "/**/a", "a**t",
)  # fmt: skip


def ignored_by_git(patterns: str, directory: Path) -> set[str]:
    (directory / ".gitignore").write_text(patterns)
    output = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin", "-z"],
        input="\0".join(PATHS),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert output.returncode in (0, 1), output.stderr
    return set(filter(None, output.stdout.split("\0")))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path], check=True, timeout=30)
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    return tmp_path


@pytest.mark.parametrize("patterns", [*PATTERNS, "*.pt\n!a.pt", "b/\n!b/a.pt", "*\n!/a", "src/*\n!src/x.py"])
def test_files_that_git_ignores_are_excluded(patterns: str, repository: Path) -> None:
    ignore = Ignore(patterns.split("\n"))
    assert {path for path in PATHS if ignore.excludes(path, is_directory=False)} == ignored_by_git(patterns, repository)


def test_later_patterns_win() -> None:
    assert not Ignore([".git", "!.git"]).matches(".git", is_directory=True)


def test_invalid_pattern_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"patterns as in a .gitignore, got 'x\[z-a\]'"):
        Ignore(["x[z-a]"])
