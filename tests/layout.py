"""Lint the layout of the repository: folders, sizes, docstrings of tests, import cycles, and the paths in docs/how.

``make lint`` runs it as ``python -m tests.layout``; each line that it prints is one broken rule.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.tree import files_below

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = ("stacks", "bootstrap", "launcher", "trainer", "cli", "local")
FOLDERS: Final = {*PRODUCT, "benchmarks", "bin", "docs", "examples", "tests"}
MAX_MODULES: Final = 12
MAX_LINES: Final = 300
MIN_LINES: Final = 25
MAX_LINES_BELOW: Final[Mapping[str, int]] = {"cli/commands": 99}
"""Folders whose files must be shorter than others: a command's file contains only its options and output; other
packages do the work."""
MORE_MODULES: Final[Mapping[str, tuple[int, str]]] = {
    "trainer/data": (13, "one dataset a file"),
}
"""Packages that may have more modules: how many, and the reason."""
SHORT_FILES: Final[Mapping[str, str]] = {
    "bootstrap/files/workers.py": "one renderer a file",
    "bootstrap/files/paths.py": "shared by the packages of bootstrap",
    "launcher/errors.py": "the errors of a package",
    "launcher/paths.py": "names that the runner imports with every job",
    "launcher/subcommand_names.py": "names that are imported without their code",
    "launcher/validate.py": "shared by all options",
    "local/errors.py": "the errors of a package",
    "local/run_dir.py": "shared by the packages of local",
    "local/faults/clients.py": "one cache for all faults",
    "cli/preflight/price.py": "one check a file",
    "cli/commands/jobs/jobs.py": "one command a file",
    "cli/commands/jobs/logs.py": "one command a file",
    "cli/commands/access/policy.py": "one command a file",
    "cli/commands/access/known_hosts.py": "one command a file",
    "cli/commands/access/ssh_config.py": "one command a file",
    "stacks/storage/log_group.py": "one construct a file",
}
"""Files that may be shorter, with the reason."""
ENTRY_POINTS: Final = ("__init__.py", "__main__.py")
ROW: Final = re.compile(r"^\| \d+ \| (\w+) \| `([^`]+)` \| ([^|]+) \|", re.MULTILINE)
"""Matches a row of a reading path: where its functions run, their file, and their names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingPath:
    """A table of the files that a reader opens, in this order, to follow one action through the product."""

    page: str
    folder: str
    """Folder that the names of the files begin in."""
    goal: str
    """The ends of the path, for the message about its length."""
    entries: Mapping[str, str]
    """Machine on which functions run, and the name of the first one there."""
    max_files: int


LAUNCH_PATH: Final = ReadingPath(
    page="docs/how/launcher.md",
    folder="launcher",
    goal="from the command to the process",
    entries={"master": "main", "node": "main"},
    max_files=10,
)
SIZE_PATH: Final = ReadingPath(
    page="docs/how/stacks.md",
    folder="",
    goal="from the setting to the workers file",
    entries={"laptop": "main", "master": "run_pass"},
    max_files=12,
)
PATHS: Final = (LAUNCH_PATH, SIZE_PATH)


def broken_rules(repository: Path = REPOSITORY) -> Iterator[str]:
    """Yield one line for each broken rule."""
    yield from _folders(repository)
    yield from _packages(repository)
    yield from _files(repository)
    yield from _docstrings_of_tests(repository)
    for package in PRODUCT:
        yield from _cycles(repository, package)
    for path in PATHS:
        yield from _reading_path(repository, path)


def _folders(repository: Path) -> Iterator[str]:
    # Only folders with tracked files: others contain caches and outputs.
    listed = subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=True).stdout
    found = {name.split("/")[0] for name in listed.splitlines() if "/" in name and not name.startswith(".")}
    yield from (f"{name}: no such top-level folder in the layout" for name in sorted(found - FOLDERS))
    yield from (f"{name}: missing top-level folder" for name in sorted(FOLDERS - found))


def _modules(repository: Path, package: str) -> Iterator[Path]:
    yield from (path.relative_to(repository) for path in files_below(repository / package, "*.py"))


def _packages(repository: Path) -> Iterator[str]:
    paths = (path for package in PRODUCT for path in _modules(repository, package) if path.name not in ENTRY_POINTS)
    for package, count in sorted(Counter(path.parent.as_posix() for path in paths).items()):
        most, _ = MORE_MODULES.get(package, (MAX_MODULES, ""))
        if count > most:
            yield f"{package}: {count} modules, at most {most}"


def _files(repository: Path) -> Iterator[str]:
    for path in (path for package in (*PRODUCT, "tests") for path in _modules(repository, package)):
        lines = len((repository / path).read_text().splitlines())
        most = min([MAX_LINES, *(most for folder, most in MAX_LINES_BELOW.items() if path.is_relative_to(folder))])
        if lines > most:
            yield f"{path}: {lines} lines, at most {most}"
        may_be_short = path.name in ENTRY_POINTS or path.parts[0] == "tests" or path.as_posix() in SHORT_FILES
        if lines < MIN_LINES and not may_be_short:
            yield f"{path}: {lines} lines, at least {MIN_LINES}: merge it into its neighbor"


def _docstrings_of_tests(repository: Path) -> Iterator[str]:
    for path in _modules(repository, "tests"):
        text = (repository / path).read_text()
        if text and ast.get_docstring(ast.parse(text)) is None:
            yield f"{path}: no docstring; say in one line what it tests or provides"


def _cycles(repository: Path, package: str) -> Iterator[str]:
    """Find cycles between modules, and between the packages directly below a top-level one."""
    modules = {_dotted(path): repository / path for path in _modules(repository, package)}
    graph = {name: imported_modules(path, modules) - {name} for name, path in modules.items()}
    yield from _cycle(graph)
    packages: dict[str, set[str]] = {}
    for name, imports in graph.items():
        if name.count(".") >= 2:
            own = packages.setdefault(_subpackage(name), set())
            own |= {_subpackage(other) for other in imports if other.count(".") >= 2} - {_subpackage(name)}
    yield from _cycle(packages)


def imported_modules(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """Return the modules among ``modules`` that a file imports at run time."""
    found: set[str] = set()
    for node in _executed(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & modules.keys() or {node.module} & modules.keys()
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules.keys()
    return found


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _executed(child)


def _cycle(graph: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield a line for each set of nodes that all lead to each other."""
    reached = {name: _reachable(graph, name) for name in graph}
    cycles = {frozenset(other for other in found if name in reached[other]) for name, found in reached.items()}
    for cycle in cycles:
        if cycle:
            yield f"import cycle: {' -> '.join(sorted(cycle))}"


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    left = [*graph[start]]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += graph[name]
    return found


def _reading_path(repository: Path, path: ReadingPath) -> Iterator[str]:
    """Check the number of files of a path, their functions, and that functions of earlier rows call them."""
    page = repository / path.page
    rows = ROW.findall(page.read_text()) if page.exists() else []
    files = [file for _, file, _ in rows]
    if not 1 <= len(files) <= path.max_files:
        yield f"{path.page}: {len(files)} files {path.goal}, 1 to {path.max_files} allowed"
    yield from (f"{path.page}: {file} is opened twice" for file, count in Counter(files).items() if count > 1)
    called = {where: {entry} for where, entry in path.entries.items()}
    for where, file, cell in rows:
        name_of_file = (Path(path.folder) / file).as_posix()
        functions = _functions(repository / name_of_file)
        names = re.findall(r"`([^`]+)`", cell)
        # Calls by the file's own functions count too, because the reader has it open.
        called[where] |= {name for one in names for name in functions.get(one, ())}
        for name in names:
            # A call of a class calls its __init__.
            if name not in functions:
                yield f"{path.page}: {name_of_file} has no function {name}"
            elif name.removesuffix(".__init__").rpartition(".")[2] not in called[where]:
                yield f"{path.page}: no function of an earlier row calls {name} of {name_of_file}"


def _functions(path: Path) -> dict[str, set[str]]:
    """Return a file's functions and methods, each with the names that it calls or passes on."""
    found: dict[str, set[str]] = {}
    body = ast.parse(path.read_text()).body if path.exists() else []
    classes = [(f"{node.name}.", node.body) for node in body if isinstance(node, ast.ClassDef)]
    for prefix, nodes in [("", body), *classes]:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + node.name] = {
                    one.id if isinstance(one, ast.Name) else one.attr
                    for one in ast.walk(node)
                    if isinstance(one, ast.Name | ast.Attribute)
                }
    return found


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _subpackage(module: str) -> str:
    return ".".join(module.split(".")[:2])


def main() -> int:
    """Print the broken rules; return 1 if there are any."""
    broken = [*broken_rules()]
    for line in broken:
        print(line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
