"""Check that the same files give the same bundle, with everything that a node needs."""

import ast
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from stacks.nodes import bundle


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("release")
    with zipfile.ZipFile(io.BytesIO(bundle.build())) as archive:
        archive.extractall(root)
    return root


def repository(root: Path, *, order: list[str]) -> Path:
    for package in bundle.PACKAGES:
        (root / package / "__pycache__").mkdir(parents=True)
        (root / package / "__pycache__" / "agent.cpython-310.pyc").write_bytes(os.urandom(8))
        (root / package / "tests").mkdir()
        (root / package / "tests" / "test_agent.py").write_text("")
        for name in order:
            (root / package / name).write_text(name)
    return root


def test_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    first = bundle.build(repository(tmp_path / "a", order=["agent.py", "hosts.py"]))
    second_root = repository(tmp_path / "b", order=["hosts.py", "agent.py"])
    (second_root / "bootstrap" / "hosts.py").chmod(0o700)
    os.utime(second_root / "bootstrap" / "hosts.py", (1, 1))
    assert bundle.build(second_root) == first


def test_changed_file_changes_the_bytes(tmp_path: Path) -> None:
    first = bundle.build(repository(tmp_path / "a", order=["agent.py"]))
    changed = repository(tmp_path / "b", order=["agent.py"])
    (changed / "launcher" / "agent.py").write_text("other")
    assert bundle.build(changed) != first


def test_bundle_has_the_three_packages_without_tests_and_caches(tmp_path: Path) -> None:
    content = bundle.build(repository(tmp_path, order=["agent.py"]))
    names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    ours = [name for name in names if not name.startswith("vendor/")]
    assert ours == ["bootstrap/agent.py", "launcher/agent.py", "trainer/agent.py"]


def test_real_bundle_starts_with_our_code(unpacked: Path) -> None:
    assert (unpacked / "bootstrap" / "contract.py").is_file()
    assert (unpacked / "launcher").is_dir()
    assert (unpacked / "trainer").is_dir()


def test_bundle_is_smaller_than_8_mb() -> None:
    assert len(bundle.build()) < 8_000_000


REMOVED_IN_3_12 = {"asynchat", "asyncore", "distutils", "imp", "smtpd"}


def test_bundle_imports_nothing_removed_from_python_3_12(unpacked: Path) -> None:
    found = {
        f"{file.relative_to(unpacked)}: {name}"
        for file in unpacked.rglob("*.py")
        for name in _imported(file) & REMOVED_IN_3_12
    }
    assert found == set()


def _imported(file: Path) -> set[str]:
    """Return the top-level names of the modules that a file imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_boto3_works_from_the_vendor_directory_alone(unpacked: Path) -> None:
    vendor = unpacked / "vendor"
    code = f"""
import sys
sys.path.insert(0, {str(vendor)!r})
import boto3
assert boto3.__file__.startswith({str(vendor)!r}), boto3.__file__
for service in {sorted(bundle.SERVICES)!r}:
    boto3.client(service, region_name="us-east-1")
boto3.client("ec2", region_name="us-east-1").get_paginator("describe_instances")
boto3.client("autoscaling", region_name="us-east-1").get_paginator("describe_auto_scaling_groups")
"""
    # -I and -S: no site-packages, no PYTHONPATH, no current directory.
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
