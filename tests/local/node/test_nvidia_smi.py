"""Test the simulated nvidia-smi."""

import subprocess
import sys
from pathlib import Path

import pytest

from local.node import nvidia_smi
from local.node.container import install_simulated_nvidia_smi


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create the disk of a node with two GPUs."""
    install_simulated_nvidia_smi(tmp_path, instance_id="i-00000000000000001", models=["L4", "L4"])
    return tmp_path


def see(root: Path, count: int) -> None:
    """Write the file with which a fault hides GPUs."""
    (root / nvidia_smi.VISIBLE_COUNT_FILE).parent.mkdir(parents=True, exist_ok=True)
    (root / nvidia_smi.VISIBLE_COUNT_FILE).write_text(f"{count}\n")


def test_nvidia_smi_lists_one_line_per_gpu(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nvidia_smi.main(["-L"], root) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("GPU 0: NVIDIA L4 (UUID: GPU-")
    assert second.startswith("GPU 1: NVIDIA L4 (UUID: GPU-")
    assert first.split("UUID: ")[1] != second.split("UUID: ")[1]


def test_nvidia_smi_answers_queries_as_csv(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nvidia_smi.main(["--query-gpu=index,name", "--format=csv"], root) == 0
    assert capsys.readouterr().out == "index, name\n0, NVIDIA L4\n1, NVIDIA L4\n"
    assert nvidia_smi.main(["--query-gpu=name,uuid", "--format=csv,noheader"], root) == 0
    assert capsys.readouterr().out.startswith("NVIDIA L4, GPU-")


def test_nvidia_smi_lists_no_compute_apps(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = "--query-compute-apps=gpu_uuid,pid"
    assert nvidia_smi.main([asked, "--format=csv,noheader"], root) == 0
    assert capsys.readouterr().out == ""
    assert nvidia_smi.main([asked, "--format=csv"], root) == 0
    assert capsys.readouterr().out == "gpu_uuid, pid\n"


def test_lost_gpu_is_not_listed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    see(root, 1)
    assert nvidia_smi.main(["--query-gpu=index,count", "--format=csv,noheader"], root) == 0
    assert capsys.readouterr().out == "0, 1\n"
    see(root, 0)
    assert nvidia_smi.main(["-L"], root) == 6
    assert capsys.readouterr().out == "No devices were found\n"


def test_unknown_nvidia_smi_field_is_reported(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nvidia_smi.main(["--query-gpu=index,color", "--format=csv"], root) == 2
    assert 'Field "color" is not a valid field to query.' in capsys.readouterr().out


def test_nvidia_smi_is_a_standalone_program(root: Path) -> None:
    command = root / "usr/bin/nvidia-smi"
    assert command.stat().st_mode & 0o777 == 0o755
    shown = subprocess.run([sys.executable, "-I", command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "simulated" in shown
