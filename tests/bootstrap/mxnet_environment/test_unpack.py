"""Check that archives with anything that an environment does not need are refused."""

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from bootstrap.errors import MxnetEnvironmentError
from bootstrap.mxnet_environment.unpack import unpack


def member(name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.mode, found.mtime = kind, link, mode, 1_000_000
    found.uid = found.gid = 12345
    return found


def pack(file: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(file, "w:gz") as packed:
        for member in members:
            member.size = 2 if member.isreg() else 0
            packed.addfile(member, io.BytesIO(b"hi"))
    return file


def test_environment_is_unpacked_without_owners_and_special_modes(tmp_path: Path) -> None:
    to = tmp_path / "to"
    to.mkdir()
    members = [
        member(".", tarfile.DIRTYPE, mode=0o1777),
        member("./bin", tarfile.DIRTYPE, mode=0o2777),
        member("./bin/su", mode=0o6777),
        member("./bin/data", mode=0o666),
        member("./bin/python", tarfile.SYMTYPE, link="su"),
        member("./lib64", tarfile.SYMTYPE, link="lib"),
        member("./lib/deep/link", tarfile.SYMTYPE, link="../../bin/su"),
    ]
    unpack(pack(tmp_path / "a", *members), to)
    modes = {name: stat.S_IMODE((to / name).stat().st_mode) for name in (".", "bin", "bin/su", "bin/data")}
    assert modes == {".": 0o755, "bin": 0o755, "bin/su": 0o755, "bin/data": 0o644}
    found = (to / "bin/su").stat()
    assert (found.st_uid, found.st_gid, found.st_mtime) == (os.getuid(), os.getgid(), 1_000_000)
    assert (to / "lib/deep/link").read_text() == "hi"
    assert (to / "lib64").readlink() == Path("lib")


LINK, HARD = tarfile.SYMTYPE, tarfile.LNKTYPE
EVIL = {
    "absolute": [member("/tmp/out")],
    "up": [member("../out")],
    "up inside": [member("a/../../out")],
    "device": [member("sda", tarfile.BLKTYPE)],
    "null": [member("null", tarfile.CHRTYPE)],
    "fifo": [member("fifo", tarfile.FIFOTYPE)],
    "hard link": [member("shadow", HARD, link="/etc/shadow")],
    "absolute link": [member("a", LINK, link="/etc")],
    "link up": [member("a", LINK, link="..")],
    "link far up": [member("a/b", LINK, link="../../out")],
    "link up in its middle": [member("b", LINK, link="."), member("a", LINK, link="b/../..")],
    "behind a link": [member("a", LINK, link="b"), member("a/out")],
    "over a link": [member("a", LINK, link="b"), member("a")],
    "link over a directory": [member("a", tarfile.DIRTYPE), member("a", LINK, link="b")],
    "twice": [member("a"), member("a")],
    "behind a file": [member("a"), member("a/b")],
}


@pytest.mark.parametrize("name", EVIL)
def test_archive_members_that_an_environment_never_has_are_refused(tmp_path: Path, name: str) -> None:
    to = tmp_path / "in/to"
    to.mkdir(parents=True)
    with pytest.raises(MxnetEnvironmentError) as failure:
        unpack(pack(tmp_path / "a", *EVIL[name]), to)
    assert failure.value.short == "bad archive"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "in"]
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["to"]


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00broken" * 10])
def test_bytes_that_are_no_archive_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(MxnetEnvironmentError, match="cannot unpack the environment"):
        unpack(tmp_path / "a", tmp_path)
