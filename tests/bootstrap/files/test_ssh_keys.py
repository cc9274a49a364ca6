"""Check that each master makes its own cluster key, and that no worker keeps one."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from bootstrap.atomic_file import Permissions
from bootstrap.contract import CLUSTER_KEY_DIR, CLUSTER_KEY_FILE
from bootstrap.errors import CommandError
from bootstrap.files.paths import under_root
from bootstrap.files.ssh_keys import delete_cluster_key, ensure_cluster_key
from tests.bootstrap.file_state import file_state
from tests.bootstrap.identities import public_key
from tests.bootstrap.simulated_node import RecordedSystem

USER = Permissions(uid=1234, gid=5678)


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """Record the owner, by name, that each file should get, because only root may change owners."""
    found: dict[str, tuple[int, int]] = {}

    def chown(path: Path, uid: int, gid: int) -> None:
        found[path.name] = (uid, gid)

    monkeypatch.setattr(os, "chown", chown)
    return found


def make_key(root: Path, system: RecordedSystem, *, instance_id: str = "i-1") -> str:
    return ensure_cluster_key(root, instance_id=instance_id, user=USER, system=system)


def key_file(root: Path) -> Path:
    return under_root(root, CLUSTER_KEY_FILE)


@pytest.mark.usefixtures("owners")
def test_key_is_made_once(tmp_path: Path) -> None:
    system = RecordedSystem()
    public = make_key(tmp_path, system)
    assert public == public_key("0 i-1")
    assert key_file(tmp_path).read_text() == "private half of i-1\n"
    before = file_state(key_file(tmp_path))
    assert make_key(tmp_path, system) == public
    assert system.calls == ["make-key"]
    assert file_state(key_file(tmp_path)) == before


def test_private_half_is_for_the_login_user_alone(tmp_path: Path, owners: dict[str, tuple[int, int]]) -> None:
    old = os.umask(0)
    try:
        make_key(tmp_path, RecordedSystem())
    finally:
        os.umask(old)
    assert stat.S_IMODE(key_file(tmp_path).stat().st_mode) == 0o600
    assert owners["id_ed25519"] == (1234, 5678)
    assert stat.S_IMODE(key_file(tmp_path).with_name("id_ed25519.pub").stat().st_mode) == 0o644
    # ssh reaches the key as the login user.
    assert stat.S_IMODE(key_file(tmp_path).parent.stat().st_mode) == 0o755


@pytest.mark.usefixtures("owners")
def test_master_made_of_an_image_of_another_makes_its_own(tmp_path: Path) -> None:
    system = RecordedSystem()
    old = make_key(tmp_path, system)
    new = make_key(tmp_path, system, instance_id="i-2")
    assert new != old
    assert key_file(tmp_path).read_text() == "private half of i-2\n"
    assert make_key(tmp_path, system, instance_id="i-2") == new


@pytest.mark.usefixtures("owners")
@pytest.mark.parametrize("lost", ["id_ed25519", "id_ed25519.pub"])
def test_incomplete_key_pair_is_replaced(tmp_path: Path, lost: str) -> None:
    system = RecordedSystem()
    make_key(tmp_path, system)
    key_file(tmp_path).with_name(lost).unlink()
    assert make_key(tmp_path, system) == public_key("1 i-1")
    files = under_root(tmp_path, CLUSTER_KEY_DIR).iterdir()
    assert sorted(file.name for file in files) == ["id_ed25519", "id_ed25519.pub"]


@pytest.mark.usefixtures("owners")
def test_key_creation_is_retried_after_failure(tmp_path: Path) -> None:
    class Broken(RecordedSystem):
        def make_key(self, file: Path, *, comment: str) -> None:
            file.write_text("half a key")
            raise CommandError("ssh-keygen -q exited 1: no space")

    with pytest.raises(CommandError, match="no space"):
        make_key(tmp_path, Broken())
    assert not key_file(tmp_path).exists()
    assert make_key(tmp_path, RecordedSystem()) == public_key("0 i-1")
    assert [path.name for path in under_root(tmp_path, CLUSTER_KEY_DIR).parent.iterdir()] == ["cluster-key"]


@pytest.mark.usefixtures("owners")
def test_deleting_the_cluster_key_leaves_no_file(tmp_path: Path) -> None:
    make_key(tmp_path, RecordedSystem())
    directory = under_root(tmp_path, CLUSTER_KEY_DIR)
    directory.with_name(".cluster-key.new").mkdir()
    delete_cluster_key(tmp_path)
    assert list(directory.parent.iterdir()) == []
    delete_cluster_key(tmp_path)


@pytest.mark.usefixtures("owners")
def test_old_key_stays_complete_until_the_new_one_replaces_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A master killed at any moment has a complete key or none.
    make_key(tmp_path, RecordedSystem())
    directory = under_root(tmp_path, CLUSTER_KEY_DIR)
    seen: list[list[str]] = []
    real = shutil.rmtree

    def rmtree(path: Path, *, ignore_errors: bool) -> None:
        seen.append(sorted(file.read_text() for file in directory.iterdir()))
        real(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    make_key(tmp_path, RecordedSystem(), instance_id="i-2")
    assert seen == [["private half of i-1\n", f"{public_key('0 i-1')} i-1\n"]] * 2
