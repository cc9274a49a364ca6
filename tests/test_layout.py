"""Check the layout script: breaking each rule in a small tree gives one line."""

import subprocess
from pathlib import Path

import pytest

from tests.layout import FOLDERS, LAUNCH_PATH, PRODUCT, SIZE_PATH, ReadingPath, broken_rules

LONG_ENOUGH = "# a line\n" * 30


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    write(tmp_path, "launcher/main.py", "def main(): run_job()\n")
    write(tmp_path, "launcher/job.py", "def run_job(): pass\n")
    write_table(tmp_path, "`main.py` | `main`", "`job.py` | `run_job`")
    write(tmp_path, "bootstrap/agent.py", "class Agent:\n    def run_pass(self): pass\n")
    write_table(tmp_path, "`bootstrap/agent.py` | `Agent.run_pass`", path=SIZE_PATH)
    return tmp_path


def write_table(tree: Path, *rows: str, path: ReadingPath = LAUNCH_PATH) -> None:
    page = tree / path.page
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("".join(f"| {number} | master | {row} | what happens |\n" for number, row in enumerate(rows, 1)))


def broken(tree: Path) -> list[str]:
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tree, check=True)
    return [*broken_rules(tree)]


def write(tree: Path, name: str, text: str = "") -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(text + LONG_ENOUGH)


def test_tidy_tree_breaks_no_rule(tree: Path) -> None:
    assert broken(tree) == []


def test_another_top_level_folder_is_reported(tree: Path) -> None:
    write(tree, "utils/a.py")
    assert broken(tree) == ["utils: no such top-level folder in the layout"]


def test_package_with_too_many_modules_is_reported(tree: Path) -> None:
    for number in range(13):
        write(tree, f"cli/m{number}.py")
    assert broken(tree) == ["cli: 13 modules, at most 12"]


@pytest.mark.parametrize(("lines", "sentence"), [(301, "301 lines, at most 300"), (5, "5 lines, at least 25")])
def test_file_that_is_too_long_or_too_short_is_reported(tree: Path, lines: int, sentence: str) -> None:
    (tree / PRODUCT[0] / "a.py").write_text("# a line\n" * lines)
    [line] = broken(tree)
    assert line.startswith(f"stacks/a.py: {sentence}")


def test_test_file_without_a_docstring_is_reported(tree: Path) -> None:
    write(tree, "tests/cli/test_a.py", '"""Test a."""\n')
    assert broken(tree) == []
    write(tree, "tests/cli/test_b.py", "B = 1\n")
    assert broken(tree) == ["tests/cli/test_b.py: no docstring; say in one line what it tests or provides"]


def test_file_of_tests_may_be_short_but_not_long(tree: Path) -> None:
    (tree / "tests/cli").mkdir()
    for name, lines in (("long", 301), ("short", 5)):
        (tree / f"tests/cli/test_{name}.py").write_text('"""Test a."""\n' + "# a line\n" * (lines - 1))
    assert broken(tree) == ["tests/cli/test_long.py: 301 lines, at most 300"]


def test_command_of_a_hundred_lines_is_reported(tree: Path) -> None:
    (tree / "cli/commands/cluster").mkdir(parents=True)
    for name, lines in (("long", 100), ("short", 99)):
        (tree / f"cli/commands/cluster/{name}.py").write_text("# a line\n" * lines)
    assert broken(tree) == ["cli/commands/cluster/long.py: 100 lines, at most 99"]


def test_cycle_of_modules_is_reported(tree: Path) -> None:
    write(tree, "cli/a.py", "import cli.b\n")
    write(tree, "cli/b.py", "from cli import a\n")
    [line] = broken(tree)
    assert line.startswith("import cycle: cli.")


def test_cycle_of_packages_is_reported(tree: Path) -> None:
    for name, imported in (("x/a", "cli.y.b"), ("y/b", ""), ("y/c", "cli.x.d"), ("x/d", "")):
        write(tree, f"cli/{name}.py", f"import {imported}\n" if imported else "")
    [line] = broken(tree)
    assert {*line.removeprefix("import cycle: ").split(" -> ")} == {"cli.x", "cli.y"}


def test_every_cycle_is_reported_not_only_the_first(tree: Path) -> None:
    for name, imported in (("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")):
        write(tree, f"cli/{name}.py", f"import cli.{imported}\n")
    assert sorted(broken(tree)) == ["import cycle: cli.a -> cli.b", "import cycle: cli.c -> cli.d"]


def test_launch_path_may_have_ten_files(tree: Path) -> None:
    names = [f"f{number}" for number in range(LAUNCH_PATH.max_files)]
    for name in names:
        write(tree, f"launcher/hops/{name}.py", f"def {name}(): pass\n")
    write(tree, "launcher/main.py", f"def main(): {'(), '.join(names)}()\n")
    rows = [f"`hops/{name}.py` | `{name}`" for name in names]
    write_table(tree, "`main.py` | `main`", *rows[1:])
    assert broken(tree) == []
    write_table(tree, "`main.py` | `main`", *rows)
    assert broken(tree) == [f"{LAUNCH_PATH.page}: 11 files from the command to the process, 1 to 10 allowed"]


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
    write_table(tree, "`main.py` | `main`", row)
    assert broken(tree) == [f"{LAUNCH_PATH.page}: {sentence}"]


def test_launch_path_without_a_table_is_reported(tree: Path) -> None:
    write_table(tree)
    assert broken(tree) == [f"{LAUNCH_PATH.page}: 0 files from the command to the process, 1 to 10 allowed"]


def test_row_of_the_size_path_may_be_a_method_or_a_class_that_the_rows_above_call(tree: Path) -> None:
    write(tree, "bootstrap/agent.py", "class Agent:\n    def run_pass(self): Files().write()\n")
    write(tree, "bootstrap/files.py", "class Files:\n    def __init__(self): pass\n    def write(self): pass\n")
    agent = "`bootstrap/agent.py` | `Agent.run_pass`"
    write_table(tree, agent, "`bootstrap/files.py` | `Files.__init__`, `Files.write`", path=SIZE_PATH)
    assert broken(tree) == []
    write_table(tree, "`bootstrap/files.py` | `Files.__init__`", path=SIZE_PATH)
    assert broken(tree) == [
        f"{SIZE_PATH.page}: no function of an earlier row calls Files.__init__ of bootstrap/files.py"
    ]


def test_size_path_of_thirteen_files_is_reported(tree: Path) -> None:
    names = [f"f{number}" for number in range(SIZE_PATH.max_files)]
    for name in names:
        write(tree, f"stacks/hops/{name}.py", f"def {name}(): pass\n")
    write(tree, "bootstrap/agent.py", f"class Agent:\n    def run_pass(self): {'(), '.join(names)}()\n")
    rows = ["`bootstrap/agent.py` | `Agent.run_pass`", *(f"`stacks/hops/{name}.py` | `{name}`" for name in names)]
    write_table(tree, *rows[:-1], path=SIZE_PATH)
    assert broken(tree) == []
    write_table(tree, *rows, path=SIZE_PATH)
    assert broken(tree) == [f"{SIZE_PATH.page}: 13 files from the setting to the workers file, 1 to 12 allowed"]
