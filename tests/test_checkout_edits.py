"""Check that every edit that end-to-end tests make in a copy of the project still applies to the project."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support.checkouts import Edit
from tests.tree import files_below

REPOSITORY = Path(__file__).resolve().parents[1]


def edits(value: object) -> Iterator[Edit]:
    if isinstance(value, Edit):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from edits(each)


def edits_of_modules() -> list[Edit]:
    """Return the edits among the constants of the end-to-end tests."""
    paths = [path for path in files_below(REPOSITORY / "tests/e2e", "*.py") if "Edit(" in path.read_text()]
    names = (".".join(path.relative_to(REPOSITORY).with_suffix("").parts) for path in paths)
    return [edit for name in names for value in vars(importlib.import_module(name)).values() for edit in edits(value)]


EDITS = edits_of_modules()


def test_edits_are_found() -> None:
    assert len(EDITS) > 5


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{edit.file}: {edit.old[:40]}")
def test_text_that_an_edit_replaces_occurs_once(edit: Edit) -> None:
    assert (REPOSITORY / edit.file).read_text().count(edit.old) == 1
