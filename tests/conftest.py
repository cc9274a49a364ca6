"""Shared fixtures of all tests."""

import functools
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.loaders import JSONFileLoader

REPOSITORY = Path(__file__).parents[1]


def pytest_configure() -> None:
    """Let programs that the tests start be interrupted: in the background, a shell has its commands ignore SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _no_bytecode_in_the_checkout() -> Iterator[None]:
    """Programs that tests start in isolation, as nodes do, write bytecode beside their sources."""
    yield
    for directory in REPOSITORY.glob("[a-z]*/**/__pycache__"):
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def _services_are_read_once() -> Iterator[None]:
    """Botocore reads its descriptions of AWS's services in every session, and each verb and each agent opens one."""
    read = functools.cache(functools.partial(JSONFileLoader.load_file, JSONFileLoader()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, file_path: read(file_path))
        yield
