"""Check the patches at the import of MXNet and at exit; MXNet and NumPy are stand-ins."""

import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap.mxnet_environment.build import install_patches

pytestmark = pytest.mark.allow_subprocess
NUMPY = "float = 'its own'\n"
MXNET = """
import atexit, numpy
class nd:
    waitall = staticmethod(lambda: print("waits for all"))
atexit.register(print, "skips the rest")
kind = numpy.bool
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet/__init__.py").write_text(MXNET)
    (tmp_path / "numpy.py").write_text(NUMPY)
    install_patches(tmp_path)
    return tmp_path


def run(site: Path, script: str) -> list[str]:
    """Run a script with this site directory; return its output."""
    command = [sys.executable, "-S", "-c", f"import site; site.addsitedir({str(site)!r})\n{script}"]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout.splitlines()


def test_waitall_runs_before_mxnet_exits(site: Path) -> None:
    assert run(site, "import mxnet, mxnet") == ["waits for all", "skips the rest"]


def test_mxnet_is_patched_after_an_earlier_find_spec(site: Path) -> None:
    find = "import importlib.util, sys; before = list(sys.meta_path); importlib.util.find_spec('mxnet')"
    output = run(site, f"{find}; import mxnet; print(len(before) - len(sys.meta_path))")
    assert output == ["1", "waits for all", "skips the rest"]


def test_numpy_gets_its_old_names_and_keeps_its_present_ones(site: Path) -> None:
    output = run(site, "import mxnet, numpy; print(mxnet.kind, numpy.object, numpy.float)")
    assert output[0] == "<class 'bool'> <class 'object'> its own"


def test_patches_do_nothing_without_mxnet(site: Path) -> None:
    assert run(site, "import numpy, sys; print(hasattr(numpy, 'bool'), 'importlib.util' in sys.modules)") == [
        "False False"
    ]
    (site / "mxnet/__init__.py").unlink()
    (site / "mxnet").rmdir()
    assert run(site, "try: import mxnet\nexcept ModuleNotFoundError as error: print(error)") == [
        "No module named 'mxnet'"
    ]
