"""Test that ``make clean`` removes everything, and refuses to while a local AWS is running."""

import subprocess
import sys
from pathlib import Path

import pytest

from local.clean import clean
from local.errors import LocalError
from local.run.processes import record_process

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("LOCAL_AWS_DIR", raising=False)
    cache = tmp_path / "deeplearning-cdk"
    (cache / "image").mkdir(parents=True)
    return cache


def start(cache: Path, name: str) -> Path:
    """Create a run owned by this process, in its state before its control plane answers."""
    run_dir = cache / "run" / name
    run_dir.mkdir(parents=True)
    record_process(run_dir / "owner")
    return run_dir


def make_clean() -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "clean"], cwd=REPOSITORY, capture_output=True, text=True, timeout=180, check=False)


def test_clean_is_refused_while_a_local_aws_is_up_and_names_it(cache: Path) -> None:
    start(cache, "3f2a9c1d")
    start(cache, "00a1b2c3")
    done = make_clean()
    assert done.returncode != 0
    assert done.stderr.splitlines()[0] == (
        "error: a local AWS is up, end it first (make end RUN=...): 00a1b2c3, 3f2a9c1d"
    )
    assert (cache / "image").is_dir()


def test_clean_removes_leftovers_of_an_ended_local_aws(cache: Path, tmp_path: Path) -> None:
    (start(cache, "3f2a9c1d") / "owner").write_text("1 0")
    (tmp_path / "other").mkdir()
    clean([cache, tmp_path / "never-made"])
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_clean_is_refused_inside_a_local_aws(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_AWS_DIR", "/run/3f2a9c1d")
    with pytest.raises(LocalError, match="outside of a local AWS only, this is inside /run/3f2a9c1d"):
        clean([cache])
    assert (cache / "image").is_dir()


def test_clean_needs_no_environment() -> None:
    program = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); import local.clean"
    subprocess.run([sys.executable, "-I", "-S", "-B", "-c", program], check=True, timeout=180)
