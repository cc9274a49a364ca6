"""Check that imports run one way: each package imports only what it may."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tree import files_below

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = ("stacks", "bootstrap", "launcher", "trainer", "cli", "local", "benchmarks")
CONTRACT = {"bootstrap.contract"}
RECORDS = {"bootstrap.cluster.record_validation", "bootstrap.cluster.records"}
"""Code that checks records, which every reader of records uses."""
PAUSES = {"bootstrap.idle.pause_record"}
"""Code that checks the record of upcoming pauses."""
TEAM_KEYS = {"bootstrap.team_keys.keys"}
"""Code that checks SSH keys, which settings and nodes use."""
SIZES = {"bootstrap.aws.group_sizes"}
"""The only module that computes the groups' sizes, for every writer."""
ALLOWED: dict[str, set[str]] = {
    "stacks": CONTRACT | SIZES | TEAM_KEYS | {"bootstrap.config"},
    "launcher": CONTRACT | RECORDS,
    "cli": CONTRACT | RECORDS | PAUSES | SIZES | {"stacks.catalog", "stacks.prices", "stacks.settings"},
    "bootstrap": set(),
    "trainer": set(),
}
"""Modules of other packages that a package may import; local and benchmarks are outside the product."""
ON_NODES = {"bootstrap": {"boto3", "botocore"}, "launcher": set(), "trainer": {"torch", "mxnet", "horovod", "numpy"}}
"""Packages that code on nodes may import besides the standard library."""

ELSEWHERE = {
    "bootstrap/mxnet_environment/mxnet_patches.py": {"numpy"},
    "launcher/durable/bucket.py": {"boto3", "boto3.exceptions", "botocore.config", "botocore.exceptions"},
    "launcher/runner/s3/listing.py": {"botocore.config", "botocore.exceptions", "botocore.session"},
    "launcher/runner/s3/object_reader.py": {
        "botocore.auth",
        "botocore.awsrequest",
        "botocore.exceptions",
        "botocore.httpsession",
        "botocore.response",
        "botocore.utils",
    },
    "trainer/data/images/s3_object.py": {"boto3", "botocore.config", "botocore.exceptions", "botocore.session"},
}
"""Modules that single files import: one runs in another environment, with MXNet; others take the release's boto3."""


def modules(package: str) -> list[Path]:
    return files_below(REPOSITORY / package, "*.py")


def imports(path: Path) -> Iterator[str]:
    """Yield the absolute modules that a file imports; ``from a import b`` yields a and a.b."""
    tree = ast.parse(path.read_text(), filename=str(path))
    package = path.relative_to(REPOSITORY).with_suffix("").parts[:-1]
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join((*base, *([node.module] if node.module else [])))
            yield from ([f"{origin}.{alias.name}" for alias in node.names] if origin in PACKAGES else [origin])


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _executed(child)


def all_imports(package: str) -> Iterator[tuple[Path, str]]:
    for path in modules(package):
        for name in imports(path):
            yield path.relative_to(REPOSITORY), name


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_packages_import_only_what_they_may(package: str) -> None:
    foreign = [
        (str(path), name)
        for path, name in all_imports(package)
        if name.partition(".")[0] in PACKAGES
        and name.partition(".")[0] != package
        and not any(name == allowed or name.startswith(f"{allowed}.") for allowed in ALLOWED[package])
    ]
    assert foreign == []


@pytest.mark.parametrize("package", sorted(ON_NODES))
def test_code_on_nodes_needs_only_what_is_there(package: str) -> None:
    known = sys.stdlib_module_names | ON_NODES[package] | {"bootstrap", package}
    names = [(str(path), name) for path, name in all_imports(package) if name.partition(".")[0] not in known]
    assert [(path, name) for path, name in names if name not in ELSEWHERE.get(path, ())] == []


@pytest.mark.parametrize("package", [package for package in PACKAGES if package not in ("stacks", "benchmarks")])
def test_only_stacks_and_the_app_import_the_cdk(package: str) -> None:
    cdk = ("aws_cdk", "constructs", "jsii")
    assert [(str(p), n) for p, n in all_imports(package) if n.partition(".")[0] in cdk] == []


@pytest.mark.parametrize("name", ["cluster/record_validation", "cluster/records", "team_keys/keys"])
def test_record_checks_import_nothing_else(name: str) -> None:
    seen = set(imports(REPOSITORY / "bootstrap" / f"{name}.py"))
    ours = {n for n in seen if n.startswith("bootstrap")}
    assert ours <= {"bootstrap.contract", "bootstrap.cluster.record_validation", *TEAM_KEYS}
    assert {n.partition(".")[0] for n in seen - ours} <= sys.stdlib_module_names


def test_settings_are_read_without_the_cdk() -> None:
    packages = ("stacks.settings", "stacks.catalog", "stacks.prices")
    files = [REPOSITORY / "stacks" / "__init__.py", *(f for name in packages for f in modules(name.replace(".", "/")))]
    seen = {name for path in files for name in imports(path)}
    foreign = {n for n in seen if n.partition(".")[0] not in sys.stdlib_module_names}
    assert {n for n in foreign if not n.startswith((*packages, "bootstrap.contract", *SIZES, *TEAM_KEYS))} == set()


def test_nothing_of_the_product_imports_local() -> None:
    # Like tests, benchmarks see the product from outside.
    product = [package for package in PACKAGES if package not in ("local", "benchmarks")]
    paths = [*(path for package in product for path in modules(package)), REPOSITORY / "app.py"]
    assert [p for p in paths for n in imports(p) if n.partition(".")[0] == "local"] == []


def test_group_sizes_imports_only_the_contract() -> None:
    seen = set(imports(REPOSITORY / "bootstrap/aws/group_sizes.py"))
    assert {n for n in seen if n.startswith("bootstrap")} <= CONTRACT
    assert {n.partition(".")[0] for n in seen} <= sys.stdlib_module_names | {"bootstrap"}
