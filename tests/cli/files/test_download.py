"""Test copies from a real sshd, and from one that lies."""

import errno
import io
import os
import shlex
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from cli.aws.nodes import ClusterNode
from cli.errors import ClusterError, UsageError
from cli.files.download import Archive, Differing, Download, remote_tar
from cli.files.download import download as download_into
from cli.ssh.master_connection import MasterConnection

MASTER = ClusterNode(node_index=1, instance_id="i-1", address="10.0.0.1", node_type="master", host_key="")
LOG_TIME_NS = 1_234_567_890_123_456_789
WORKER = replace(MASTER, node_index=2, node_type="worker")


def download(connection: MasterConnection, source: Archive, destination: str) -> Download:
    return download_into(connection, source, destination, differing=Differing())


@pytest.fixture
def results(remote_home: Path) -> Path:
    folder = remote_home / "it's out"
    (folder / "deep").mkdir(parents=True, exist_ok=True)
    (folder / "deep" / "weights.bin").write_bytes(bytes(300_000))
    (folder / "log").write_text("done")
    os.utime(folder / "log", ns=(LOG_TIME_NS, LOG_TIME_NS))
    if not (folder / "latest").is_symlink():
        (folder / "latest").symlink_to("/etc/passwd")
    return folder


@pytest.mark.parametrize("path", ["it's out", "it's out/", "~/it's out"])
def test_folder_is_downloaded_without_its_links(
    connection: MasterConnection, results: Path, tmp_path: Path, path: str
) -> None:
    got = download(connection, remote_tar(path, MASTER, master=MASTER), str(tmp_path))
    assert (got.path, got.files, got.size, got.links) == (tmp_path / "it's out", 2, 300_004, 1)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == [
        "it's out/deep/weights.bin",
        "it's out/log",
    ]
    assert (tmp_path / "it's out" / "log").stat().st_mtime_ns == LOG_TIME_NS


def test_file_is_saved_under_the_given_name(connection: MasterConnection, results: Path, tmp_path: Path) -> None:
    got = download(connection, remote_tar(str(results / "log"), MASTER, master=MASTER), f"{tmp_path}/new")
    assert (got.path, (tmp_path / "new").read_text()) == (tmp_path / "new", "done")


def test_slash_at_the_end_makes_a_directory(connection: MasterConnection, results: Path, tmp_path: Path) -> None:
    got = download(connection, remote_tar(str(results / "log"), MASTER, master=MASTER), f"{tmp_path}/new/")
    assert (got.path, (tmp_path / "new" / "log").read_text()) == (tmp_path / "new" / "log", "done")


def test_slash_after_a_file_is_an_error(connection: MasterConnection, results: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ClusterError, match=r"cannot write .*/mine"):
        download(connection, remote_tar(str(results / "log"), MASTER, master=MASTER), f"{tmp_path}/mine/")
    assert (tmp_path / "mine").read_text() == "mine"


def test_folder_does_not_replace_a_file(connection: MasterConnection, results: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ClusterError, match=r"cannot pull a folder over the file .*/mine: remove it, or name another"):
        download(connection, remote_tar(str(results), MASTER, master=MASTER), f"{tmp_path}/mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize(
    ("age_ns", "content", "overwrites", "outcome", "replaced", "kept"),
    [
        (-1, "mine", False, "done", 1, 0),
        (1, "mine", False, "mine", 0, 1),
        (1, "mine", True, "done", 1, 0),
        (1, "done", False, "done", 0, 0),
    ],
)
def test_newer_local_file_of_other_content_stays_unless_overwritten(
    connection: MasterConnection, results: Path, tmp_path: Path,
    age_ns: int, content: str, overwrites: bool, outcome: str, replaced: int, kept: int,
) -> None:  # fmt: skip
    log = tmp_path / results.name / "log"
    log.parent.mkdir()
    log.write_text(content)
    os.utime(log, ns=(LOG_TIME_NS + age_ns, LOG_TIME_NS + age_ns))
    source = remote_tar(str(results), MASTER, master=MASTER)
    differing = Differing()
    got = download_into(connection, source, str(tmp_path), differing=differing, overwrites=overwrites)
    assert (log.read_text(), differing.replaced, differing.kept) == (outcome, [log] * replaced, [log] * kept)
    assert (log.parent / "deep" / "weights.bin").exists()
    assert got.files == 2 - kept
    assert (log.stat().st_mtime_ns == LOG_TIME_NS) is not bool(kept)


def test_worker_files_are_copied_through_the_master() -> None:
    line = shlex.split(remote_tar("a b", WORKER, master=MASTER).command)
    assert line[:-1] == ["ssh", "-o", "BatchMode=yes", "--", "deeplearning-worker2"]
    assert line[-1] == "cd && tar -C . --format=posix -cf - -- 'a b'"


def test_missing_path_raises_tars_own_reason(connection: MasterConnection, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"^tar: nope: .*No such file or directory$"):
        download(connection, remote_tar("nope", MASTER, master=MASTER), str(tmp_path))


@pytest.mark.parametrize("path", ["", ".", "..", "a/..", "/", "//", "~", "~/", "~/.", "a\0b"])
def test_path_that_names_no_file_or_folder_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="a remote path must name a file or folder in the home directory or below /"):
        remote_tar(path, MASTER, master=MASTER)


@pytest.mark.parametrize(
    ("path", "line", "name"),
    [
        ("~/a/", "cd && tar -C . --format=posix -cf - -- a", "a"),
        ("a/./b/.", "cd && tar -C a --format=posix -cf - -- b", "b"),
        ("../x", "cd && tar -C .. --format=posix -cf - -- x", "x"),
        ("/etc", "cd && tar -C / --format=posix -cf - -- etc", "etc"),
    ],
)
def test_path_may_be_written_in_many_ways(path: str, line: str, name: str) -> None:
    assert remote_tar(path, MASTER, master=MASTER) == Archive(command=line, name=name)


def lie(remote_home: Path, *entries: tarfile.TarInfo) -> Archive:
    """Return a function that sends these entries where the user asked for `out`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(b"evil") if entry.isreg() else None)
    (remote_home / "lie.tar").write_bytes(buffer.getvalue())
    return Archive(command="cd && cat lie.tar", name="out")


def regular(name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = 4
    return entry


@pytest.mark.parametrize(
    "name", ["../evil", "/evil", "out/../../evil", ".bashrc", ".git/hooks/pre-commit", "./out/x/.."]
)
def test_download_fails_when_a_node_sends_a_path_outside(
    connection: MasterConnection, remote_home: Path, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "inner" / "target"
    target.mkdir(parents=True)
    with pytest.raises(ClusterError, match="the node sent a file name that leads out of the destination"):
        download(connection, lie(remote_home, regular(name)), str(target))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_link_and_then_a_file_through_it_stay_inside(
    connection: MasterConnection, remote_home: Path, tmp_path: Path
) -> None:
    link = tarfile.TarInfo("out/door")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "outside")
    (tmp_path / "outside").mkdir()
    target = tmp_path / "target"
    target.mkdir()
    download(connection, lie(remote_home, link, regular("out/door/evil")), str(target))
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("link", ["out", "out/door"])
def test_download_fails_when_a_local_link_points_outside(
    connection: MasterConnection, remote_home: Path, tmp_path: Path, link: str
) -> None:
    (tmp_path / "outside" / "door").mkdir(parents=True)
    door = tmp_path / "target" / link
    door.parent.mkdir(parents=True)
    door.symlink_to(tmp_path / "outside")
    with pytest.raises(ClusterError, match=f"{door} is a symbolic link, through which nothing is written"):
        download(connection, lie(remote_home, regular("out/door/evil")), str(tmp_path / "target"))
    assert not list((tmp_path / "outside").rglob("evil"))


def test_files_named_like_partial_downloads_are_downloaded(
    connection: MasterConnection, remote_home: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.part").write_text("mine")
    got = download(connection, lie(remote_home, *map(regular, ("out/x.part", "out/x", "out/mine"))), str(tmp_path))
    assert got.files == 3
    assert sorted(path.name for path in got.path.iterdir()) == ["mine", "mine.part", "x", "x.part"]


@pytest.mark.parametrize(
    ("field", "value"), [("mtime", "nan"), ("mtime", "1e300"), ("path", "out/a\0b"), ("GNU.sparse.major", "1")]
)
def test_archive_with_impossible_values_is_refused_and_leaves_no_part(
    connection: MasterConnection, remote_home: Path, tmp_path: Path, field: str, value: str
) -> None:
    entry = regular("out/x")
    entry.pax_headers = {field: value}
    if field.startswith("GNU"):
        entry.pax_headers["GNU.sparse.minor"] = "0"
    with pytest.raises(ClusterError, match=r"^(the archive ended too early|the node sent an archive)"):
        download(connection, lie(remote_home, entry, *map(regular, ["out/y"] * 9)), str(tmp_path))
    assert not list((tmp_path / "out").glob(".dlcluster-*"))


def test_archive_that_ends_early_is_reported_with_its_count_of_files(
    connection: MasterConnection, results: Path, tmp_path: Path
) -> None:
    whole = remote_tar("it's out", MASTER, master=MASTER)
    cut = replace(whole, command=f"{whole.command} | head -c 100000")
    with pytest.raises(ClusterError, match=r"^the archive ended too early, after \d files \(unexpected end of data\)$"):
        download(connection, cut, str(tmp_path))


def test_replaced_and_kept_files_are_known_after_an_error(
    connection: MasterConnection, remote_home: Path, tmp_path: Path
) -> None:
    older, newer = (tmp_path / "out" / name for name in ("older", "newer"))
    older.parent.mkdir()
    for path in (older, newer):
        path.write_text("mine")
    os.utime(older, (-1, -1))
    (tmp_path / "out" / "door").symlink_to(tmp_path)
    differing = Differing()
    entries = [regular(name) for name in ("out/older", "out/newer", "out/door/x")]
    with pytest.raises(ClusterError, match="is a symbolic link"):
        download_into(connection, lie(remote_home, *entries), str(tmp_path), differing=differing)
    assert (differing.replaced, older.read_text()) == ([older], "evil")
    assert (differing.kept, newer.read_text()) == ([newer], "mine")


def test_file_that_cannot_be_replaced_is_not_reported_as_replaced(
    connection: MasterConnection, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.write_text("mine")
    os.utime(log, (1, 1))

    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self), None, str(target))

    monkeypatch.setattr(Path, "replace", full)
    differing = Differing()
    source = remote_tar(str(results / "log"), MASTER, master=MASTER)
    with pytest.raises(ClusterError, match="No space left on device"):
        download_into(connection, source, str(tmp_path), differing=differing)
    assert (differing.replaced, log.read_text()) == ([], "mine")


def test_file_changed_while_read_is_a_warning(connection: MasterConnection, results: Path, tmp_path: Path) -> None:
    whole = remote_tar("it's out", MASTER, master=MASTER)
    changed = replace(whole, command=f"{whole.command}; echo 'tar: log: file changed as we read it' >&2; exit 1")
    got = download(connection, changed, str(tmp_path))
    assert (got.files, got.warnings) == (2, ["tar: log: file changed as we read it"])


def test_much_on_standard_error_does_not_stop_the_archive(
    connection: MasterConnection, results: Path, tmp_path: Path
) -> None:
    whole = remote_tar("it's out", MASTER, master=MASTER)
    loud = replace(whole, command=f"head -c 5000000 /dev/zero >&2; {whole.command}")
    assert download(connection, loud, str(tmp_path)).files == 2
