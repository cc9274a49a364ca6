"""Check the layout script: each rule, broken in a small tree of its own, is one line."""

import subprocess
from pathlib import Path

import pytest

from tests.layout import FOLDERS, PRODUCT, broken_rules

LONG_ENOUGH = "# a line\n" * 30


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    return tmp_path


def broken(tree: Path) -> list[str]:
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tree, check=True)
    return [*broken_rules(tree)]


def write(tree: Path, name: str, text: str = "") -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(text + LONG_ENOUGH)


def test_a_tidy_tree_breaks_no_rule(tree: Path) -> None:
    assert broken(tree) == []


def test_another_top_level_folder(tree: Path) -> None:
    write(tree, "utils/a.py")
    assert broken(tree) == ["utils: no such top-level folder in the layout"]


def test_a_package_with_too_many_modules(tree: Path) -> None:
    for number in range(13):
        write(tree, f"cli/m{number}.py")
    assert broken(tree) == ["cli: 13 modules, at most 12"]


@pytest.mark.parametrize(("lines", "sentence"), [(301, "301 lines, at most 300"), (5, "5 lines, at least 25")])
def test_a_file_too_long_or_too_short(tree: Path, lines: int, sentence: str) -> None:
    (tree / PRODUCT[0] / "a.py").write_text("# a line\n" * lines)
    [line] = broken(tree)
    assert line.startswith(f"stacks/a.py: {sentence}")


def test_a_circle_of_modules(tree: Path) -> None:
    write(tree, "cli/a.py", "import cli.b\n")
    write(tree, "cli/b.py", "from cli import a\n")
    [line] = broken(tree)
    assert line.startswith("import circle: cli.")


def test_a_circle_of_packages(tree: Path) -> None:
    for name, imported in (("x/a", "cli.y.b"), ("y/b", ""), ("y/c", "cli.x.d"), ("x/d", "")):
        write(tree, f"cli/{name}.py", f"import {imported}\n" if imported else "")
    [line] = broken(tree)
    assert {*line.removeprefix("import circle: ").split(" -> ")} == {"cli.x", "cli.y"}


def test_every_circle_is_reported_not_only_the_first(tree: Path) -> None:
    for name, imported in (("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")):
        write(tree, f"cli/{name}.py", f"import cli.{imported}\n")
    assert sorted(broken(tree)) == ["import circle: cli.a -> cli.b", "import circle: cli.c -> cli.d"]
