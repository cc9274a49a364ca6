"""Share botocore's loader among all sessions: each makes one of its own, which lists and merges the models again.

tests/conftest.py caches the files alone, which suffices for most tests and changes nothing of botocore's objects.
Each command of dlcluster makes a session, and half of the time of a command in a test's process went there.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.loaders import Loader, create_loader
from botocore.session import Session


@contextmanager
def shared_models() -> Iterator[None]:
    """Give all sessions in the block one loader, which keeps what it has read."""

    def register(session: Any) -> None:
        session.register_component("data_loader", _loader())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "_register_data_loader", register)
        yield


@functools.cache
def _loader() -> Loader:
    return create_loader()
