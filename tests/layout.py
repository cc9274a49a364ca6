"""Check the layout of the repository: folders, sizes of packages and files, import circles, and the launch path.

``make lint`` runs it as ``python -m tests.layout``; each line that it prints is one broken rule.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.tree import files_below

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = ("stacks", "bootstrap", "launcher", "trainer", "cli", "local")
FOLDERS: Final = {*PRODUCT, "benchmarks", "bin", "docs", "examples", "tests"}
MAX_MODULES: Final = 12
MAX_LINES: Final = 300
MIN_LINES: Final = 25
MORE_MODULES: Final[Mapping[str, tuple[int, str]]] = {
    "local/aws/permissions": (13, "one service a file"),
    "stacks/settings": (16, "one concern a file"),
    "trainer/data": (13, "one data set a file"),
}
"""Packages that may have more modules: how many, and the reason."""
SHORT_FILES: Final[Mapping[str, str]] = {
    "bootstrap/files/workers.py": "one renderer a file",
    "bootstrap/files/paths.py": "shared by the packages of bootstrap",
    "launcher/errors.py": "the errors of a package",
    "launcher/paths.py": "names that the runner imports with every job",
    "launcher/subcommands.py": "names that are imported without their code",
    "launcher/validate.py": "shared by all options",
    "local/errors.py": "the errors of a package",
    "local/run_dir.py": "shared by the packages of local",
    "local/faults/clients.py": "one cache for all faults",
    "cli/verbs/jobs/jobs.py": "one verb a file",
    "cli/verbs/jobs/logs.py": "one verb a file",
    "cli/verbs/access/policy.py": "one verb a file",
    "cli/verbs/access/known_hosts.py": "one verb a file",
    "cli/verbs/access/ssh_config.py": "one verb a file",
    "stacks/storage/log_group.py": "one construct a file",
}
"""Files that may be shorter, with the reason."""
ENTRY_POINTS: Final = ("__init__.py", "__main__.py")
LAUNCH_PATH_PAGE: Final = "docs/how/launcher.md"
"""Page with the table of the files that a reader opens to follow one launch."""
LAUNCH_PATH_ROW: Final = re.compile(r"^\| \d+ \| (master|node) \| `([^`]+)` \| ([^|]+) \|", re.MULTILINE)
"""Matches a row: where its functions run, their file, and their names."""
MAX_LAUNCH_FILES: Final = 10


def broken_rules(repository: Path = REPOSITORY) -> Iterator[str]:
    """Yield one line for each broken rule."""
    yield from _folders(repository)
    yield from _packages(repository)
    yield from _files(repository)
    for package in PRODUCT:
        yield from _circles(repository, package)
    yield from _launch_path(repository)


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
    for path in (path for package in PRODUCT for path in _modules(repository, package)):
        lines = len((repository / path).read_text().splitlines())
        if lines > MAX_LINES:
            yield f"{path}: {lines} lines, at most {MAX_LINES}"
        if lines < MIN_LINES and path.name not in ENTRY_POINTS and path.as_posix() not in SHORT_FILES:
            yield f"{path}: {lines} lines, at least {MIN_LINES}: merge it into its neighbour"


def _circles(repository: Path, package: str) -> Iterator[str]:
    """Find circles between modules, and between the packages directly below a top-level one."""
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
    circles = {frozenset(other for other in found if name in reached[other]) for name, found in reached.items()}
    for circle in circles:
        if circle:
            yield f"import circle: {' -> '.join(sorted(circle))}"


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    left = [*graph[start]]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += graph[name]
    return found


def _launch_path(repository: Path) -> Iterator[str]:
    """Check the table of one launch's files: their number, their functions, and that earlier rows call them."""
    page = repository / LAUNCH_PATH_PAGE
    rows = LAUNCH_PATH_ROW.findall(page.read_text()) if page.exists() else []
    files = [file for _, file, _ in rows]
    if not 1 <= len(files) <= MAX_LAUNCH_FILES:
        yield f"{LAUNCH_PATH_PAGE}: {len(files)} files from the command to the process, 1 to {MAX_LAUNCH_FILES} allowed"
    yield from (f"{LAUNCH_PATH_PAGE}: {file} is opened twice" for file, count in Counter(files).items() if count > 1)
    called: dict[str, set[str]] = {"master": {"main"}, "node": {"main"}}
    for where, file, cell in rows:
        functions = _functions(repository / "launcher" / file)
        names = re.findall(r"`([^`]+)`", cell)
        # Calls by the file's own functions count too, because the reader has it open.
        called[where] |= {name for one in names for name in functions.get(one, ())}
        for name in names:
            if name not in functions:
                yield f"{LAUNCH_PATH_PAGE}: launcher/{file} has no function {name}"
            elif name.rpartition(".")[2] not in called[where]:
                yield f"{LAUNCH_PATH_PAGE}: no function of an earlier row calls {name} of launcher/{file}"


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
