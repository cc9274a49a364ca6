"""Test that files are replaced whole, whatever interrupts the agent."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.atomic_file import Permissions, point_link, replace_block, write_and_act, write_block, write_file
from bootstrap.contract import MARKER_BEGIN, MARKER_END
from tests.bootstrap.file_state import file_state

BLOCK = f"{MARKER_BEGIN}\nours\n{MARKER_END}\n"
# We treat other systems' line ends, form feeds and the like as text; only a newline ends a line.
foreign_text = st.lists(st.text(alphabet=st.characters(exclude_characters="\n")), max_size=6).map("\n".join)


@given(foreign_text)
def test_block_is_put_after_foreign_lines_and_taken_away_again(text: str) -> None:
    with_block = replace_block(text, "ours\n")
    whole_lines = text if text.endswith("\n") or not text else f"{text}\n"
    assert with_block == whole_lines + BLOCK
    assert replace_block(with_block, "") == whole_lines


@given(foreign_text, foreign_text, st.text(alphabet="ab\n", max_size=9).map(lambda text: f"{text}\n"))
def test_block_keeps_its_place_and_foreign_lines_their_bytes(before: str, after: str, lines: str) -> None:
    before = f"{before}\n"
    old = before + BLOCK + after
    assert replace_block(old, lines) == f"{before}{MARKER_BEGIN}\n{lines}{MARKER_END}\n{after}"
    assert replace_block(old, "ours\n") == old


def test_second_block_of_ours_is_removed() -> None:
    assert replace_block(f"a\n{BLOCK}b\n{BLOCK}c\n", "new\n") == (f"a\n{MARKER_BEGIN}\nnew\n{MARKER_END}\nb\nc\n")


@pytest.mark.parametrize(
    "text", [f"a\n{MARKER_BEGIN}\nb\n", f"a\nb\n{MARKER_END}\n", f"{MARKER_END}\na\n{MARKER_BEGIN}\nb\n"]
)
def test_unpaired_marker_is_removed_without_foreign_lines(text: str) -> None:
    assert replace_block(text, "ours\n") == f"a\nb\n{BLOCK}"


def test_stray_end_marker_removes_no_other_line() -> None:
    assert replace_block(f"a\n{BLOCK}b\n{MARKER_END}\nc\n", "ours\n") == f"a\n{BLOCK}b\nc\n"


def test_shared_file_keeps_mode_and_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(b"1.2.3.4 caf\xe9\r\n")
    file.chmod(0o640)
    assert write_block(file, "ours\n")
    assert file.read_bytes() == b"1.2.3.4 caf\xe9\r\n" + BLOCK.encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert not write_block(file, "ours\n")


def test_shared_file_behind_a_link_stays_behind_it(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text("a\n")
    link = tmp_path / "link"
    link.symlink_to(real)
    write_block(link, "ours\n")
    assert link.is_symlink()
    assert real.read_text() == f"a\n{BLOCK}"


def test_file_with_the_right_content_is_not_written_again(tmp_path: Path) -> None:
    file = tmp_path / "new" / "file"
    assert write_file(file, "text")
    before = file_state(file)
    assert not write_file(file, "text")
    assert file_state(file) == before


def test_new_files_are_world_readable_under_any_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        write_file(tmp_path / "a" / "b" / "file", "text")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a" / "b" / "file").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o755


def test_wrong_mode_is_corrected(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_file(file, "text")
    file.chmod(0o600)
    assert write_file(file, "text", Permissions(mode=0o755))
    assert stat.S_IMODE(file.stat().st_mode) == 0o755


def test_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_file(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_kill_before_the_rename_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file.conf"
    file.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", _killed)
        with pytest.raises(KeyboardInterrupt):
            write_file(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.glob("*.conf")) == [file]
    assert write_file(file, "newer")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["newer"]


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_pending_action_runs_after_a_kill(tmp_path: Path) -> None:
    file, pending = tmp_path / "file", tmp_path / "run" / "pending"
    calls: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        write_and_act(file, "text", act=_killed, pending=pending)
    assert file.read_text() == "text"
    write_and_act(file, "text", act=lambda: calls.append("acted"), pending=pending)
    write_and_act(file, "text", act=lambda: calls.append("acted"), pending=pending)
    assert calls == ["acted"]


def test_link_is_moved_to_another_target_in_one_step(tmp_path: Path) -> None:
    link = tmp_path / "current"
    assert point_link(link, Path("one"))
    assert not point_link(link, Path("one"))
    assert point_link(link, Path("two"))
    assert link.readlink() == Path("two")
    assert list(tmp_path.iterdir()) == [link]
