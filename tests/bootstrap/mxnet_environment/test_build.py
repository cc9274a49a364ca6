"""Check the commands of a build, and its failures, with stand-ins for pip."""

import contextlib
import hashlib
import io
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.errors import MxnetEnvironmentError
from bootstrap.mxnet_environment import build as build_module
from bootstrap.mxnet_environment.build import Builder
from bootstrap.mxnet_environment.recipe import Recipe

pytestmark = pytest.mark.allow_subprocess
HOROVOD = Recipe(name="horovod", python=(3, 11), machine="x86_64", libc="glibc2.36")
MXNET = Recipe(name="mxnet", python=(3, 11), machine="x86_64", libc="glibc2.36")
PYTHON = """\
#!/bin/sh
echo "$*" >> {calls}
case "$*" in
    *"-m venv"*) for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python";;
    *"{fails}"*) echo "it went wrong" >&2; exit 1;;
esac
"""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Create a Python that records its calls and fails at a named one; return the file of the calls."""

    def make(fails: str) -> Path:
        calls, program = tmp_path / "calls", tmp_path / "python3"
        program.write_text(PYTHON.format(calls=calls, fails=fails))
        program.chmod(0o755)
        monkeypatch.setattr(build_module, "SYSTEM_PYTHON", str(program))
        monkeypatch.setattr(build_module, "PYTORCH_PYTHON", str(tmp_path / "none"))
        monkeypatch.setattr(build_module, "HOROVOD_REQUIREMENTS_FILE", str(tmp_path / "wheel.txt"))
        return calls

    return make


def run(recipe: Recipe, directory: Path, *, path: str = "/usr/bin:/bin") -> None:
    Builder(deadline=time.monotonic() + 300, environ={"PATH": path}).build(recipe, directory)


def test_wheel_of_the_image_is_installed_by_hash_without_compiling(
    python: Callable[[str], Path], tmp_path: Path
) -> None:
    calls = python("nothing")
    (tmp_path / "wheel.txt").write_text("horovod==0.28.1 --hash=sha256:00\n")
    run(HOROVOD, tmp_path / "environment")
    output = calls.read_text()
    assert "--require-hashes --only-binary=:all: --no-deps -r" in output
    assert f"install --no-deps --require-hashes --only-binary=:all: -r {tmp_path}/wheel.txt" in output
    assert "--no-build-isolation" not in output
    assert output.splitlines()[-2:] == ["-c import mxnet", "-c import horovod.mxnet"]
    assert (tmp_path / "environment/frameworks").read_text() == "mxnet\nhorovod\n"


def test_without_a_wheel_horovod_is_compiled_and_the_tools_removed(
    python: Callable[[str], Path], tmp_path: Path
) -> None:
    calls = python("nothing")
    (tmp_path / "c++").write_text("#!/bin/sh\n")
    (tmp_path / "c++").chmod(0o755)
    run(HOROVOD, tmp_path / "environment", path=f"{tmp_path}:/usr/bin:/bin")
    output = calls.read_text()
    assert "horovod==" not in output
    assert re.search(r"install --no-deps --require-hashes .*--no-build-isolation -r /.+/horovod-source.txt\n", output)
    assert "uninstall --yes -r" in output


def test_mxnet_alone_has_no_horovod(python: Callable[[str], Path], tmp_path: Path) -> None:
    calls = python("nothing")
    run(MXNET, tmp_path / "environment")
    assert "horovod" not in calls.read_text()
    assert (tmp_path / "environment/frameworks").read_text() == "mxnet\n"


@pytest.mark.parametrize(
    ("fails", "short", "output"),
    [
        ("--require-hashes", "pip install failed", "exited 1: it went wrong"),
        ("import mxnet", "import mxnet failed", "exited 1: it went wrong"),
        ("ensurepip", "no pip", "MXNet needs the package python3-venv or pip in"),
        ("nothing", "no C++ compiler", "Horovod needs c++ to compile, found none: install g++"),
    ],
)
def test_failed_build_has_a_short_reason_and_its_output(
    python: Callable[[str], Path], tmp_path: Path, fails: str, short: str, output: str
) -> None:
    python(fails)
    if fails == "import mxnet":
        (tmp_path / "wheel.txt").write_text("horovod==0.28.1 --hash=sha256:00\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("mkdir", "cp", "sh"):
        (programs / name).symlink_to(f"/bin/{name}")
    with pytest.raises(MxnetEnvironmentError) as failure:
        run(HOROVOD, tmp_path / "environment", path=str(programs))
    assert failure.value.short == short
    assert output in str(failure.value)
    # With the instance's id it must fit into the 64 characters of a signal.
    assert len(f"i-0123456789abcdef0 mxnet: {short}") <= 64
    assert not (tmp_path / "environment/frameworks").exists()


def test_build_past_its_deadline_took_too_long(
    python: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python("nothing")

    def never(command: list[str], **options: float) -> None:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", never)
    with pytest.raises(MxnetEnvironmentError, match=r"timed out after \d+ s") as failure:
        run(MXNET, tmp_path / "environment")
    assert failure.value.short == "build took too long"


SETUP = """
from pathlib import Path
Path({mark!r}).touch()
from setuptools import setup
setup(name="horovod", version="0.28.1", py_modules=[])
"""


def put_source(directory: Path, mark: Path) -> str:
    """Write an sdist that leaves a mark when any of its code runs; return its hash."""
    file = directory / "horovod-0.28.1.tar.gz"
    files = {"setup.py": SETUP.format(mark=str(mark)), "PKG-INFO": "Name: horovod\nVersion: 0.28.1\n"}
    with tarfile.open(file, "w:gz") as packed:
        for name, text in files.items():
            member = tarfile.TarInfo(f"horovod-0.28.1/{name}")
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text.encode()))
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("right", [True, False])
def test_horovods_source_with_a_wrong_hash_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, right: bool
) -> None:
    mark, listed, tools = tmp_path / "mark", tmp_path / "source.txt", tmp_path / "tools.txt"
    sha256 = put_source(tmp_path, mark)
    listed.write_text(f"horovod==0.28.1 --hash=sha256:{sha256 if right else '0' * 64}\n")
    tools.write_text("")
    monkeypatch.setattr(build_module, "HOROVOD_SOURCE", listed)
    monkeypatch.setattr(build_module, "BUILD_TOOLS", tools)
    monkeypatch.setattr(build_module, "HOROVOD_REQUIREMENTS_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(build_module, "COMPILER", "true")
    environ = {"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "HOME": str(tmp_path)}
    environ["PIP_TARGET"] = str(tmp_path / "to")
    builder = Builder(deadline=time.monotonic() + 300, environ=environ)
    # With the tests' own pip and setuptools.
    with pytest.raises(MxnetEnvironmentError) if not right else contextlib.suppress(MxnetEnvironmentError):
        builder._install_horovod([sys.executable, *build_module.PIP], tmp_path)
    assert mark.exists() == right
