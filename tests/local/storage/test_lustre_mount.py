"""Test that a node mounts Lustre through its VPC's firewall, and that each refusal has Lustre's own words."""

import errno
import socket
from pathlib import Path
from threading import Timer

import pytest

from local.storage import lustre_mount_helper
from tests.local.storage.lustre_network import CASES, MODULE
from tests.local.storage.storage_network import FILE, MountOutcome, outcomes_in

FAILED = "mount.lustre: mount {source} at {place} failed: "
NO_NAME = (
    f"{FAILED}No such file or directory\nIs the MGS specification correct?\nIs the filesystem name correct?\n"
    "If upgrading, is the copied client log valid? (see upgrade docs)\n"
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, MountOutcome]]:
    """Return the directory of one network, and what each mount in it gave."""
    directory = tmp_path_factory.mktemp("lustre")
    return directory, outcomes_in(MODULE, directory)


def test_second_mount_waits_for_the_port_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("", 0)) as first:
        monkeypatch.setattr(lustre_mount_helper, "PORT", first.getsockname()[1])
        Timer(0.3, first.close).start()
        with lustre_mount_helper.acceptor():
            assert first.fileno() == -1
    with socket.create_server(("", 0)) as first:
        monkeypatch.setattr(lustre_mount_helper, "PORT", first.getsockname()[1])
        monkeypatch.setattr(lustre_mount_helper, "ANSWER_TIMEOUT_S", 0.0)
        with pytest.raises(OSError, match="in use"), lustre_mount_helper.acceptor():
            pass


@pytest.mark.parametrize(
    ("case", "printed", "code"),
    [
        ("mounted", "", 0),
        ("wrong name", NO_NAME, errno.ENOENT),
        ("no such file system", "mount.lustre: Can't parse NID '{source}'\n", errno.EINVAL),
        ("another VPC", "mount.lustre: Can't parse NID '{source}'\n", errno.EINVAL),
        ("ports 1018 to 1023 closed", f"{FAILED}Connection timed out\n", errno.ETIMEDOUT),
        ("all ports closed", f"{FAILED}Connection timed out\n", errno.ETIMEDOUT),
        ("client lets no server in", f"{FAILED}Input/output error\nIs the MGS running?\n", errno.EIO),
    ],
)
def test_lustre_mount_succeeds_or_prints_its_reason(
    outcomes: tuple[Path, dict[str, MountOutcome]], case: str, printed: str, code: int
) -> None:
    directory, by_case = outcomes
    [source] = [cases[case] for cases in CASES.values() if case in cases]
    outcome, expected = by_case[case], printed.format(source=source, place=directory / case)
    files = [FILE] if case == "mounted" else []
    assert (outcome.printed, outcome.exit_code, outcome.files) == (expected, code, files)
