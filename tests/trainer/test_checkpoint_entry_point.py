"""Check that the trainer's checkpoints have one entry point."""

import ast
from pathlib import Path

from tests.tree import files_below

REPOSITORY = Path(__file__).resolve().parents[2]
TRAINER = REPOSITORY / "trainer"
MODULES = {
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path
    for path in files_below(TRAINER, "*.py")
}


def imported_modules(path: Path) -> set[str]:
    """Return the modules of the trainer that a file imports anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & MODULES.keys() or {node.module} & MODULES.keys()
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES.keys()
    return found


def test_checkpoint_package_has_one_entrance() -> None:
    outside = [path for path in MODULES.values() if path.parent.name != "checkpoint"]
    inside = {name for name in MODULES if name.startswith("trainer.checkpoint.")}
    assert [str(path) for path in outside if imported_modules(path) & inside] == []
