"""Check that the trainer's checkpoints have one entry point and that train.py names the files of a step."""

import ast
import re
from pathlib import Path

from tests.tree import files_below

REPOSITORY = Path(__file__).resolve().parents[2]
TRAINER = REPOSITORY / "trainer"
MODULES = {
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path
    for path in files_below(TRAINER, "*.py")
}
STEP_MODULES = {
    "trainer.torch_backend.step",
    "trainer.torch_backend.optimizer",
    "trainer.torch_backend.reduction",
    "trainer.distributed.reduce.ddp",
    "trainer.distributed.reduce.gradient_buckets",
    "trainer.distributed.reduce.ring",
}
"""Modules that explain one training step, besides train.py."""


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


def test_train_docstring_lists_the_files_of_a_step() -> None:
    docstring = ast.get_docstring(ast.parse((TRAINER / "train.py").read_text()))
    assert docstring is not None
    listed = re.findall(r"^- (\S+\.py):", docstring, re.MULTILINE)
    assert sorted(listed) == sorted(
        str(MODULES[name].relative_to(TRAINER)) for name in {"trainer.train", *STEP_MODULES}
    )


def test_step_imports_the_other_files_of_a_step() -> None:
    imported = imported_modules(MODULES["trainer.torch_backend.step"])
    reducers = imported_modules(MODULES["trainer.torch_backend.reduction"])
    assert STEP_MODULES - {"trainer.torch_backend.step"} <= imported | reducers
    assert {name for name in imported | reducers if name.startswith("trainer.distributed.reduce.")} == {
        *(name for name in STEP_MODULES if name.startswith("trainer.distributed.reduce.")),
        "trainer.distributed.reduce.collective",
    }
