"""Test the directory on the instance's own disks: it exists only while they are mounted, and is open to every user."""

from pathlib import Path

import pytest

from bootstrap.files.scratch import IMAGE_MOUNT, SCRATCH_DIR, ensure_scratch_directory


@pytest.fixture
def mount_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the image's mount point below the test's root, which Python treats as a mount point."""
    directory = tmp_path / IMAGE_MOUNT.lstrip("/")
    directory.mkdir(parents=True)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == directory)
    return directory


def test_every_user_may_write_there_and_remove_only_their_own(tmp_path: Path, mount_point: Path) -> None:
    assert ensure_scratch_directory(tmp_path) == SCRATCH_DIR
    assert (mount_point / "deeplearning").stat().st_mode & 0o7777 == 0o1777


def test_existing_files_are_kept(tmp_path: Path, mount_point: Path) -> None:
    ensure_scratch_directory(tmp_path)
    file = mount_point / "deeplearning/data"
    file.touch()
    assert ensure_scratch_directory(tmp_path) == SCRATCH_DIR
    assert file.exists()


@pytest.mark.parametrize("exists", [True, False])
def test_no_scratch_directory_without_a_mount(tmp_path: Path, exists: bool) -> None:
    if exists:
        (tmp_path / IMAGE_MOUNT.lstrip("/")).mkdir(parents=True)
    assert ensure_scratch_directory(tmp_path) is None
    assert not (tmp_path / SCRATCH_DIR.lstrip("/")).exists()


def test_scratch_fails_when_a_link_points_elsewhere(tmp_path: Path, mount_point: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (mount_point / "deeplearning").symlink_to(elsewhere)
    assert ensure_scratch_directory(tmp_path) is None
    assert elsewhere.stat().st_mode & 0o7777 == 0o700


def test_directory_of_another_user_is_no_scratch_directory(
    tmp_path: Path, mount_point: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mount_point / "deeplearning").mkdir(mode=0o755)
    monkeypatch.setattr("os.geteuid", lambda: -1)
    assert ensure_scratch_directory(tmp_path) is None
    assert (mount_point / "deeplearning").stat().st_mode & 0o7777 == 0o755
