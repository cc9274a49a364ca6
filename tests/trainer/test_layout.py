"""Check the layout of the trainer: no import circles, packages and files that fit a screen, and one entrance."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TRAINER = REPOSITORY / "trainer"
MODULES = {
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(TRAINER.rglob("*.py"))
}
MOST_MODULES = 12
MOST_LINES = 300
STEP = ("train.py", "step.py", "torch/optimizer.py", "distributed/reduce/gradient_buckets.py")
"""The files that explain one training step."""


def imported_modules(path: Path) -> set[str]:
    """Return the modules of the trainer that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & MODULES.keys() or {node.module} & MODULES.keys()
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES.keys()
    return found


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {name: imported_modules(path) - {name} for name, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import circle: {' -> '.join(error.args[1])}")


def test_no_package_has_more_modules_than_one_can_survey() -> None:
    packages = [TRAINER, *(path.parent for path in TRAINER.rglob("__init__.py"))]
    counts = {str(each): len([*each.glob("*.py")]) - 1 for each in packages}
    assert {package: count for package, count in counts.items() if count > MOST_MODULES} == {}


def test_no_file_is_longer_than_three_hundred_lines() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_checkpoints_are_one_package_with_one_entrance() -> None:
    outside = [path for path in MODULES.values() if path.parent.name != "checkpoint"]
    inside = {name for name in MODULES if name.startswith("trainer.checkpoint.")}
    assert [str(path) for path in outside if imported_modules(path) & inside] == []


def test_train_names_the_four_files_of_a_step() -> None:
    docstring = ast.get_docstring(ast.parse((TRAINER / STEP[0]).read_text()))
    assert docstring is not None
    assert all(file in docstring and (TRAINER / file).is_file() for file in STEP[1:])
