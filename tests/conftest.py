"""What holds for all tests."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def _no_bytecode_in_the_checkout() -> Iterator[None]:
    """Programs that tests start in isolation, as nodes do, write bytecode beside their sources."""
    yield
    for directory in REPOSITORY.glob("[a-z]*/**/__pycache__"):
        shutil.rmtree(directory, ignore_errors=True)
