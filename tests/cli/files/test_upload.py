"""Test copies to a real sshd."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from cli.errors import ClusterError, UsageError
from cli.files.upload import FOLDER, remote_name, upload
from cli.ssh.master_connection import MasterConnection


@pytest.fixture
def copy(remote_home: Path) -> Iterator[Path]:
    """Return where a project called my-job is stored."""
    yield remote_home / FOLDER / "my-job"
    shutil.rmtree(remote_home / FOLDER, ignore_errors=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = tmp_path / "my job"
    (top / "sub").mkdir(parents=True)
    (top / "train.py").write_text("print(1)\n")
    (top / "sub" / "it's ü.bin").write_bytes(os.urandom(700_001))
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "link").symlink_to("sub/nowhere")
    (top / "empty").touch()
    return top


def contents(top: Path) -> dict[str, object]:
    return {
        str(path.relative_to(top)): str(path.readlink())
        if path.is_symlink()
        else (path.read_bytes(), path.stat().st_mtime_ns, os.access(path, os.X_OK))
        for path in sorted(top.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_upload_sends_all_files_and_then_only_changed_ones(
    connection: MasterConnection, project: Path, copy: Path
) -> None:
    shown: list[int] = []
    first = upload(connection, project, show=lambda size: nullcontext(shown.append))
    assert contents(copy) == contents(project)
    assert (first.name, first.files, first.sent_files, first.size) == ("my-job", 5, 5, 700_001 + 9 + 10)
    assert sum(shown) > first.sent_size
    again = upload(connection, project)
    assert (again.files, again.sent_files, again.sent_size) == (5, 0, 0)

    # Same size, another time; a mode; a link's target; a folder that becomes a file, and the reverse.
    (project / "train.py").write_text("print(2)\n")
    (project / "run.sh").chmod(0o644)
    (project / "link").unlink()
    (project / "link").symlink_to("sub")
    shutil.rmtree(project / "sub")
    (project / "sub").write_text("a file now")
    (project / "empty").unlink()
    (project / "empty").mkdir()
    (project / "empty" / "inner").write_text("x")
    last = upload(connection, project)
    assert contents(copy) == contents(project)
    assert last.sent_files == 5


def test_upload_replaces_a_link_instead_of_its_target(connection: MasterConnection, project: Path, copy: Path) -> None:
    upload(connection, project)
    outside = copy.parents[1] / "outside"
    outside.write_text("mine")
    (copy / "train.py").unlink()
    (copy / "train.py").symlink_to(outside)
    upload(connection, project)
    assert contents(copy) == contents(project)
    assert outside.read_text() == "mine"


def test_copy_of_another_directory_is_not_overwritten(
    connection: MasterConnection, project: Path, copy: Path, tmp_path: Path
) -> None:
    upload(connection, project)
    other = tmp_path / "other" / "my-job"
    other.mkdir(parents=True)
    (other / "theirs.py").touch()
    message = rf"^~/my-job on the nodes comes from .*:{project}: name another directory with --to, or remove ~/"
    with pytest.raises(UsageError, match=message):
        upload(connection, other)
    assert contents(copy) == contents(project)
    assert upload(connection, other, to="theirs").name == "theirs"
    assert [*contents(copy.parent / "theirs")] == ["theirs.py"]
    with pytest.raises(UsageError, match=r"^--to must be letters, digits .* got '\.\./x'$"):
        upload(connection, other, to="../x")


def test_second_upload_is_refused_while_the_first_runs(
    connection: MasterConnection, project: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.files.upload.LOCK_WAIT_S", 1)
    copy.parent.mkdir(parents=True, exist_ok=True)
    with (copy.parent / ".my-job.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ClusterError, match=r"^another upload to ~/my-job is running: try again later$"):
            upload(connection, project)
    upload(connection, project)


@pytest.mark.parametrize(
    ("name", "expected"), [("my job", "my-job"), (".ssh", "ssh"), ("-x;rm", "x-rm"), ("ü", "job"), ("a.b_c", "a.b_c")]
)
def test_remote_directory_name_is_safe(tmp_path: Path, name: str, expected: str) -> None:
    assert remote_name(tmp_path / name) == expected


def test_command_that_ends_early_gives_its_reason(connection: MasterConnection) -> None:
    chunks = [bytes(1 << 18)] * 40
    done = connection.output("head -c 512 >/dev/null; echo 'no space left' >&2; exit 1", chunks=chunks)
    assert (done.exit_code, done.stderr) == (1, "no space left\n")
    with pytest.raises(ClusterError, match="the command on the master ended before it had read its input"):
        connection.output("head -c 512 >/dev/null", chunks=chunks)


def test_failure_to_write_on_the_master_is_reported(
    connection: MasterConnection, project: Path, remote_home: Path
) -> None:
    folder = remote_home / FOLDER
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("in the way")
    try:
        with pytest.raises(ClusterError, match=r"cannot copy to the master: mkdir: .*File exists"):
            upload(connection, project)
    finally:
        folder.unlink()
