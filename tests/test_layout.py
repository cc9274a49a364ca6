"""Check the layout script: breaking each rule in a small tree gives one line."""

import subprocess
from pathlib import Path

import pytest

from tests.layout import FOLDERS, LAUNCH_PATH_PAGE, MAX_LAUNCH_FILES, PRODUCT, broken_rules

LONG_ENOUGH = "# a line\n" * 30


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    write(tmp_path, "launcher/main.py", "def main(): run_job()\n")
    write(tmp_path, "launcher/job.py", "def run_job(): pass\n")
    write_launch_path(tmp_path, "`main.py` | `main`", "`job.py` | `run_job`")
    return tmp_path


def write_launch_path(tree: Path, *rows: str) -> None:
    page = tree / LAUNCH_PATH_PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("".join(f"| {number} | master | {row} | what happens |\n" for number, row in enumerate(rows, 1)))


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


def test_the_launch_path_may_have_ten_files(tree: Path) -> None:
    names = [f"f{number}" for number in range(MAX_LAUNCH_FILES)]
    for name in names:
        write(tree, f"launcher/hops/{name}.py", f"def {name}(): pass\n")
    write(tree, "launcher/main.py", f"def main(): {'(), '.join(names)}()\n")
    rows = [f"`hops/{name}.py` | `{name}`" for name in names]
    write_launch_path(tree, "`main.py` | `main`", *rows[1:])
    assert broken(tree) == []
    write_launch_path(tree, "`main.py` | `main`", *rows)
    assert broken(tree) == [f"{LAUNCH_PATH_PAGE}: 11 files from the command to the process, 1 to 10 allowed"]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("`main.py` | `main`", "main.py is opened twice"),
        ("`lost.py` | `run_job`", "launcher/lost.py has no function run_job"),
        ("`job.py` | `run_jobs`", "launcher/job.py has no function run_jobs"),
        ("`other.py` | `other`", "no function of an earlier row calls other of launcher/other.py"),
    ],
)
def test_each_row_of_the_launch_path_is_a_function_that_the_rows_above_call(
    tree: Path, row: str, sentence: str
) -> None:
    write(tree, "launcher/other.py", "def other(): pass\n")
    write_launch_path(tree, "`main.py` | `main`", row)
    assert broken(tree) == [f"{LAUNCH_PATH_PAGE}: {sentence}"]


def test_launch_path_without_a_table_is_reported(tree: Path) -> None:
    write_launch_path(tree)
    assert broken(tree) == [f"{LAUNCH_PATH_PAGE}: 0 files from the command to the process, 1 to 10 allowed"]
