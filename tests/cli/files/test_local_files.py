"""Test which files of a directory dlcluster sends."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cli.errors import UsageError
from cli.files import local_files
from cli.files.local_files import find_files, find_ignored, is_sent


def write(top: Path, *names: str) -> Path:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    return top


def git(top: Path, *words: str) -> None:
    subprocess.run(["git", "-C", top, *words], check=True, capture_output=True)


def test_files_of_a_checkout_are_those_that_git_does_not_ignore(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "new.py", "gone.py", "data/x", ".hidden/y", "sub/a b.py")
    (tmp_path / ".gitignore").write_text("data/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "train.py", "gone.py")
    (tmp_path / "gone.py").unlink()
    assert sorted(find_files(tmp_path)) == [".gitignore", ".hidden/y", "new.py", "sub/a b.py", "train.py"]
    assert sorted(find_files(tmp_path / "sub")) == ["a b.py"]


def test_files_of_a_submodule_are_included(tmp_path: Path) -> None:
    inner = write(tmp_path / "inner", "lib.py", "cache/z")
    (inner / ".gitignore").write_text("cache/\n")
    git(inner, "init", "-q")
    git(inner, "add", ".")
    git(inner, "-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "x")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "inner")
    assert sorted(find_files(tmp_path)) == ["inner/.gitignore", "inner/lib.py"]


def test_outside_git_all_but_hidden_folders_are_included(tmp_path: Path) -> None:
    write(tmp_path, "train.py", ".env", ".cache/x", "__pycache__/y", "sub/z")
    (tmp_path / "link").symlink_to("sub")
    found = find_files(tmp_path)
    assert sorted(found) == [".env", "link", "sub/z", "train.py"]
    assert (found["link"].link, found["link"].size) == ("sub", 0)


def test_gitignore_counts_outside_git_too(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "runs/net.pt", "sub/a.pt", "sub/b", "sub/.git/HEAD", "docs/runs")
    (tmp_path / ".gitignore").write_text("/runs\n*.pt\n")
    assert sorted(find_files(tmp_path)) == [".gitignore", "docs/runs", "sub/b", "train.py"]
    (tmp_path / "sub/.gitignore").write_text("b\n")
    assert sorted(find_files(tmp_path)) == [".gitignore", "docs/runs", "sub/.gitignore", "train.py"]


@pytest.mark.parametrize("in_checkout", [True, False])
def test_what_gitignore_leaves_out_is_listed_without_caches(tmp_path: Path, in_checkout: bool) -> None:
    write(tmp_path, "train.py", "data/a/1", "data/2", "sub/net.pt", "sub/b", "__pycache__/x.pyc", "sub/y.pyc")
    (tmp_path / ".gitignore").write_text("data/\n*.pt\n*.pyc\n__pycache__\n")
    if in_checkout:
        git(tmp_path, "init", "-q")
    assert find_ignored(tmp_path) == ["data/", "sub/net.pt"]
    assert find_ignored(tmp_path / "data") == []


def test_ignored_folder_is_sent_if_it_is_the_one_named(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "data/a/1", "data/2")
    (tmp_path / ".gitignore").write_text("data/\n")
    git(tmp_path, "init", "-q")
    assert sorted(find_files(tmp_path / "data")) == ["2", "a/1"]
    assert sorted(find_files(tmp_path / "data" / "a")) == ["1"]


def test_too_many_or_too_large_files_are_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a", "b", "c")
    monkeypatch.setattr(local_files, "MAX_FILES", 2)
    with pytest.raises(UsageError, match=r"more than 1 GiB or 2 files that would be sent: name data in \.gitignore"):
        find_files(tmp_path)
    monkeypatch.setattr(local_files, "MAX_FILES", 9)
    with (tmp_path / "data").open("wb") as file:
        file.truncate(local_files.MAX_BYTES)
    with pytest.raises(UsageError, match="more than 1 GiB"):
        find_files(tmp_path)


def test_directory_without_a_project_is_refused(tmp_path: Path, home: Path) -> None:
    for directory, message in (
        (home, f"{home} is not a project: change to its directory, or use --no-sync"),
        (Path("/"), "/ is not a project: change to its directory, or use --no-sync"),
        (tmp_path / "nope", f"no directory {tmp_path}/nope"),
        (tmp_path, f"{tmp_path} has no files to send"),
    ):
        with pytest.raises(UsageError) as caught:
            find_files(directory)
        assert str(caught.value) == message


def test_pulled_files_in_a_project_are_sent_unless_git_ignores_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write(tmp_path / "project", "train.py", "runs/1", "data/x")
    write(tmp_path, "results/1")
    (project / ".gitignore").write_text("data/\n")
    git(project, "init", "-q")
    monkeypatch.chdir(project)
    paths = ("runs", "train.py", "data", "../results")
    assert [is_sent(Path(path)) for path in paths] == [True, True, False, False]


def test_nothing_is_sent_from_the_home_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, "runs/1")
    monkeypatch.chdir(home)
    assert not is_sent(Path("runs"))


def test_submodule_that_is_not_checked_out_has_no_files(tmp_path: Path) -> None:
    inner = write(tmp_path / "origin", "lib.py")
    git(inner, "init", "-q")
    git(inner, "add", ".")
    git(inner, "-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "x")
    top = write(tmp_path / "top", "train.py")
    git(top, "init", "-q")
    git(top, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "inner")
    git(top, "submodule", "--quiet", "deinit", "-f", "inner")
    assert sorted(find_files(top)) == [".gitmodules", "train.py"]
    shutil.rmtree(top / "inner")
    assert sorted(find_files(top)) == [".gitmodules", "train.py"]


def test_failure_of_git_in_a_checkout_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "sub/secret")
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("secret\n")
    (tmp_path / ".git" / "config").write_text("[broken\n")
    for top in (tmp_path, tmp_path / "sub"):
        with pytest.raises(UsageError, match=rf"^git cannot list {top}: fatal: bad config line 1"):
            find_files(top)
