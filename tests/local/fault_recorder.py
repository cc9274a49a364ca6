"""Let tests record faults instead of causing them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from local.faults.fault_decorator import FAULT_TYPES, Method

Record = Callable[[str, tuple[Any, ...], dict[str, Any]], None]
"""Takes the name of a method of Faults and its arguments."""


def record_faults(monkeypatch: pytest.MonkeyPatch, record: Record) -> None:
    """Replace the methods of all registered faults."""

    def fake(method: Method) -> Method:
        return lambda _faults, *args, **kwargs: record(method.__name__, args, kwargs)

    for name, fault in FAULT_TYPES.items():
        recorded = replace(fault, begin=fake(fault.begin), end=fault.end and fake(fault.end))
        monkeypatch.setitem(FAULT_TYPES, name, recorded)
