"""Test that the guard refuses writes, even root's, until the file system is mounted over it."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap.shared_storage import mounts
from bootstrap.shared_storage.mounts import GUARD, MountError, OccupiedError, SharedDirectory, mounted_on, run
from bootstrap.shared_storage.target import StorageTarget
from tests.waiting import wait_until

ROOT_LINE = "24 1 254:0 / / rw,relatime - ext4 /dev/vda rw"
GUARD_LINE = f"40 24 0:41 / /shared ro,nosuid,nodev,noexec - tmpfs {GUARD} ro,size=4k"
NFS_LINE = "41 40 0:52 / /shared rw,nosuid,nodev shared:3 - nfs4 127.0.0.1:/ rw,vers=4.1,port=20490,addr=127.0.0.1"
EFS = StorageTarget(kind="efs", file_system="fs-01", host="fs-01.efs.eu-west-1.amazonaws.com")
LUSTRE = StorageTarget(
    kind="lustre", file_system="fs-01", host="fs-01.fsx.eu-west-1.amazonaws.com", mount_name="abcdefgh"
)
BELOW_LINE = "42 24 0:53 / /shared/sub rw - tmpfs other rw"


@pytest.mark.parametrize(
    ("lines", "source"),
    [
        ([ROOT_LINE], None),
        ([ROOT_LINE, BELOW_LINE], None),
        ([ROOT_LINE, GUARD_LINE], GUARD),
        ([ROOT_LINE, GUARD_LINE, NFS_LINE, BELOW_LINE], "127.0.0.1:/"),
    ],
)
def test_last_of_several_mounts_on_a_directory_counts(lines: list[str], source: str | None) -> None:
    found = mounted_on("\n".join(lines) + "\n", "/shared")
    assert (found and found.source) == source


@pytest.mark.parametrize(
    ("line", "efs", "lustre"),
    [
        (NFS_LINE, True, False),
        (NFS_LINE.replace("20490", "20449"), False, False),
        (NFS_LINE.replace("127.0.0.1:/", f"{EFS.host}:/"), True, True),
        ("41 40 0:52 / /shared rw - lustre 10.0.0.9@tcp:/abcdefgh rw,flock", False, True),
        ("41 40 0:52 / /shared rw - lustre 10.0.0.9@tcp:/another rw,flock", False, False),
        ("41 40 254:0 /home/data /shared rw - ext4 /dev/vda rw", False, False),
    ],
)
def test_mount_of_another_file_system_is_ignored(line: str, efs: bool, lustre: bool) -> None:
    found = mounted_on(f"{line}\n", "/shared")
    assert found is not None
    assert (found.refers_to(EFS), found.refers_to(LUSTRE)) == (efs, lustre)


def test_directory_is_guarded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(mounts, "run", lambda command, timeout_s: commands.append(tuple(command)))
    mountinfo = tmp_path / "proc/self/mountinfo"
    mountinfo.parent.mkdir(parents=True)
    mountinfo.write_text(f"{ROOT_LINE}\n")
    directory = SharedDirectory(tmp_path)
    directory.guard()
    assert (tmp_path / "shared").stat().st_mode & 0o222 == 0
    mountinfo.write_text(f"{ROOT_LINE}\n{GUARD_LINE}\n")
    directory.guard()
    assert len(commands) == 1
    assert not directory.is_mounted(EFS)
    mountinfo.write_text(f"{ROOT_LINE}\n{GUARD_LINE}\n{NFS_LINE}\n")
    directory.guard()
    assert len(commands) == 1
    assert directory.is_mounted(EFS)
    with pytest.raises(OccupiedError, match="/shared has another mount, nfs4 from"):
        directory.is_mounted(LUSTRE)


@pytest.mark.allow_subprocess
def test_root_cannot_write_below_the_mount_point(tmp_path: Path) -> None:
    """Create the guard in its own mount namespace, on another directory."""
    command = [*mounts.GUARD_COMMAND[:-1], str(tmp_path)]
    script = "import subprocess, sys\nsubprocess.run(sys.argv[2:], check=True)\nopen(sys.argv[1] + '/file', 'w')\n"
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", script, str(tmp_path), *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f"[Errno {errno.EROFS}]" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.allow_subprocess
@pytest.mark.parametrize(
    ("message", "state"),
    [
        ("mount: /shared: unknown filesystem type 'lustre'.", "no-client"),
        ("mount.lustre: mount X at /shared failed: No such device\nAre the lustre modules loaded?", "no-client"),
        ("mount.lustre: mount X at /shared failed: Connection timed out", "unreachable"),
        ("mount.lustre: mount X at /shared failed: Input/output error\nIs the MGS running?", "unreachable"),
        ("mount.lustre: mount X at /shared failed: No such file or directory" + "\nIs it correct?" * 20, "refused"),
        ("access denied", "refused"),
    ],
)
def test_state_of_a_failed_mount_follows_from_its_message(message: str, state: str) -> None:
    with pytest.raises(MountError, match="sh exited 32") as caught:
        run(["sh", "-c", 'printf "%s\\n" "$0" >&2; exit 32', message], timeout_s=60)
    assert caught.value.state == state


@pytest.mark.allow_subprocess
def test_hanging_mount_ends_with_its_helpers(tmp_path: Path) -> None:
    # mount(8) starts mount.lustre, which could mount long after it was given up.
    os.mkfifo(fifo := tmp_path / "open-while-the-helper-runs")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(MountError, match="timed out") as caught:
        run(["sh", "-c", 'sleep 600 > "$0" & wait', str(fifo)], timeout_s=1)
    assert caught.value.state == "unreachable"
    wait_until(lambda: not is_open_for_writing(reader), "the helper's end", timeout_s=60)
    os.close(reader)


def is_open_for_writing(reader: int) -> bool:
    """Return True if a process has the other end of a FIFO open."""
    try:
        return os.read(reader, 1) != b""
    except BlockingIOError:
        return True
