"""The process that keeps connections, and whom it gives them to."""

import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from launcher.keep.keeper import Entry, Errand
from launcher.keep.kept import DIRECTORY, Kept, leave, take
from launcher.process import Process


@pytest.fixture
def runtime() -> Iterator[Path]:
    # The path of a socket has 108 bytes at most (unix(7)).
    with TemporaryDirectory(prefix="run-", dir="/tmp") as directory:
        yield Path(directory)


def kept(host: str) -> tuple[Kept, Process]:
    process = Process.start(["cat"])
    return Kept(host=host, situation="abc", process=process), process


def test_an_errand_survives_its_text() -> None:
    errand = Errand(
        3, 60.0, "/run/a b/x.sock", [Entry("[ü]:22", "ab", (4, 5, 6, 7)), Entry("n\udcff", "cd", (8, 9, 10, 11))]
    )
    read = Errand.from_text(errand.to_text())
    assert (read.listener, read.seconds, read.place) == (3, 60.0, "/run/a b/x.sock")
    assert [(one.host, one.situation, one.fds) for one in read.entries] == [
        ("[ü]:22", "ab", (4, 5, 6, 7)),
        ("n\udcff", "cd", (8, 9, 10, 11)),
    ]


def test_what_is_left_is_taken_once_by_its_host(runtime: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(runtime)}
    both = [kept("one"), kept("zwö")]
    leave(environ, [entry for entry, _ in both], seconds=30)
    for _, process in both:
        process.close()
    assert stat.S_IMODE((runtime / DIRECTORY).stat().st_mode) == 0o700
    (taken,) = take(environ, ["zwö", "three"])
    assert (taken.host, taken.situation) == ("zwö", "abc")
    taken.process.stdin.write(b"hello")
    assert taken.process.stdout.read(5) == b"hello"
    assert take(environ, ["zwö"]) == []
    (other,) = take(environ)
    assert other.host == "one"
    for one in (taken, other):
        one.process.discard()


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o710])
def test_fails_to_keep_anything_where_others_could_reach_it(runtime: Path, mode: int) -> None:
    runtime.chmod(mode)
    entry, process = kept("one")
    leave({"XDG_RUNTIME_DIR": str(runtime)}, [entry], seconds=30)
    assert [*runtime.iterdir()] == []
    process.discard()


def test_a_keeper_that_was_killed_leaves_nothing_in_the_way(runtime: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(runtime)}
    entry, process = kept("one")
    leave(environ, [entry], seconds=30)
    (place,) = (runtime / DIRECTORY).iterdir()
    (other,) = take(environ)  # with its last connection the keeper has gone
    place.parent.joinpath("stale.sock").write_bytes(b"")
    assert take(environ) == []
    assert [*place.parent.iterdir()] in ([], [place])
    for one in (process, other.process):
        one.discard()
