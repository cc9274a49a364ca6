"""Read the libraries of a small PyTorch environment ahead: once a boot, within a deadline, whatever fails."""

import logging
import os
import re
from pathlib import Path

import pytest

from bootstrap.files.paths import run_file
from bootstrap.install import READ_AHEAD_UNIT
from bootstrap.main import main
from bootstrap.read_ahead import libraries, read_ahead_service
from bootstrap.read_ahead.libraries import find_libraries, read_all

MIB = 1024 * 1024


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a node whose agent has started, with three libraries, 5 MiB together, and files that are none."""
    site_packages = tmp_path / "opt/pytorch/lib/python3.12/site-packages"
    sizes = {"torch/lib/libtorch_cuda.so": 3, "torch/lib/libc10.so": 1, "nvidia/cublas/lib/libcublas.so.13": 1}
    for name, size in {**sizes, "torch/lib/data.bin": 2, "torch/lib/small.so": 0}.items():
        file = site_packages / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"1" * size * MIB)
    (site_packages / "torch/lib/link.so").symlink_to("libc10.so")
    run_file(tmp_path, "agent-started").parent.mkdir(parents=True)
    run_file(tmp_path, "agent-started").write_text("1\n")
    return tmp_path


def only_log_message(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = caplog.records
    caplog.clear()
    return record.getMessage()


def test_every_byte_of_the_libraries_is_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, pread = list[tuple[str, int]](), os.pread

    def recording_pread(handle: int, size: int, offset: int) -> bytes:
        asked.append((Path(f"/proc/self/fd/{handle}").readlink().name, offset))
        return pread(handle, size, offset)

    monkeypatch.setattr(os, "pread", recording_pread)
    found = find_libraries(root)
    assert [file.name for file in found] == ["libc10.so", "libtorch_cuda.so", "libcublas.so.13"]
    amount = read_all(found, deadline_s=60, chunk=2 * MIB)
    assert (amount.size, amount.total, amount.error) == (5 * MIB, 5 * MIB, "")
    chunks = {("libc10.so", 0), ("libtorch_cuda.so", 0), ("libtorch_cuda.so", 2 * MIB), ("libcublas.so.13", 0)}
    assert (set(asked), len(asked)) == (chunks, 4)


def test_libraries_are_read_once_a_boot_and_logged(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    read_ahead_service.read_ahead(root, monotonic=lambda: 0.0)
    assert only_log_message(caplog) == "read PyTorch's libraries ahead, 3 files: 5 of 5 MB in 0.0 s"
    read_ahead_service.read_ahead(root)
    assert only_log_message(caplog) == "PyTorch's libraries were read ahead since the boot"


def test_read_ahead_waits_for_the_agent_until_its_deadline(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    run_file(root, "agent-started").unlink()
    clock = [0.0]

    def sleep(seconds: float) -> None:
        assert "5 of 5 MB" not in caplog.text
        clock[0] += seconds

    read_ahead_service.read_ahead(root, monotonic=lambda: clock[0], sleep=sleep)
    assert 60 < clock[0] < 62
    assert "5 of 5 MB" in caplog.text


def test_no_chunk_is_read_after_the_deadline(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "READERS", 1)
    clock = iter([0.0, 1.0, 11.0, 12.0])  # the start, two chunks, the end
    amount = read_all(find_libraries(root), deadline_s=10, monotonic=lambda: next(clock))
    assert str(amount) == "1 of 5 MB in 12.0 s, then stopped: 10 s are over"


def test_read_error_ends_the_read_ahead_with_one_line(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def broken(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    read_ahead_service.read_ahead(root, monotonic=lambda: 0.0)
    assert re.fullmatch(
        r"read .* 3 files: 0 of 5 MB in 0.0 s, then stopped: \S+: Input/output error", only_log_message(caplog)
    )


def test_command_of_the_unit_reads_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Path]()
    monkeypatch.setattr(read_ahead_service, "read_ahead", asked.append)
    assert main([READ_AHEAD_UNIT.partition("/bootstrap ")[2].split()[0]]) == 0
    assert asked == [Path("/")]
