"""Check that every edit that end-to-end tests make in a copy of the project still applies to the project."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.broken_nodes.failed_deploy import shorten
from tests.e2e.support.checkouts import Edit
from tests.tree import files_below

REPOSITORY = Path(__file__).resolve().parents[1]


def edits_among(value: object) -> Iterator[Edit]:
    """Yield a constant of a module if it is an edit, or those that it contains."""
    if isinstance(value, Edit):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from edits_among(item)


def edits_in_functions(source: str, module_names: dict[str, Any]) -> Iterator[Edit]:
    """Yield the edits that a module's functions make, except those of files or texts that are arguments."""
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        names = {**module_names}
        for node in ast.walk(function):
            if isinstance(node, ast.arg):
                names.pop(node.arg, None)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                names |= {target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)}
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and makes_edit(names.get(node.func.id)):
                # What is inserted may depend on arguments.
                keywords = [keyword for keyword in node.keywords if keyword.arg != "new"]
                call = ast.Call(node.func, node.args, [*keywords, ast.keyword("new", ast.Constant(""))])
                if {name.id for name in ast.walk(call) if isinstance(name, ast.Name)} <= names.keys():
                    yield eval(compile(ast.fix_missing_locations(ast.Expression(call)), "an edit", "eval"), names)


def makes_edit(function: object) -> bool:
    return function is Edit or getattr(function, "__annotations__", {}).get("return") is Edit


def all_edits() -> list[Edit]:
    """Return the edits of the end-to-end tests, one for each text that they replace."""
    edits: list[Edit] = []
    for path in files_below(REPOSITORY / "tests/e2e", "*.py"):
        source = path.read_text()
        if "Edit(" in source or "shorten(" in source:
            name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
            names = vars(importlib.import_module(name))
            edits += [edit for value in names.values() for edit in edits_among(value)]
            edits += edits_in_functions(source, names)
    return [*{(edit.file, edit.old): edit for edit in edits}.values()]


EDITS = all_edits()


def test_edits_are_found() -> None:
    assert len(EDITS) > 15


def test_edits_inside_functions_are_found() -> None:
    source = """
def test(user):
    old = "from a variable"
    Edit(file="a", old=old, new=f"for {user}")
    Edit(file="a", old=user, new="")
    shorten("b", "LIMIT", old="9", new=user)
"""
    names = {"Edit": Edit, "shorten": shorten, "user": "of the module"}
    assert [(edit.file, edit.old) for edit in edits_in_functions(source, names)] == [
        ("a", "from a variable"),
        ("b", "LIMIT: Final = 9\n"),
    ]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{edit.file}: {edit.old[:40]}")
def test_text_that_an_edit_replaces_occurs_once(edit: Edit) -> None:
    assert (REPOSITORY / edit.file).read_text().count(edit.old) == 1
