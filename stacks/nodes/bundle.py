"""Build the node bundle: a zip with the code that runs on nodes and the boto3 that it needs.

The same files give the same bytes, so an unchanged bundle keeps its hash and a deploy does not change the launch
templates. Entries are stored uncompressed, because compressed bytes differ between versions of zlib.
"""

import functools
import io
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("bootstrap", "launcher", "trainer")
VENDORED: Final = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six")
"""boto3 and its dependencies, copied from the environment that runs the synth."""
SERVICES: Final = frozenset({"autoscaling", "cloudformation", "dynamodb", "ec2", "fsx", "logs", "s3"})
"""Services that the agent calls; botocore has the models of some 400, in 25 MB."""

_SKIPPED_DIRECTORIES: Final = frozenset({"__pycache__", "tests"})
_OLDEST_DATE: Final = (1980, 1, 1, 0, 0, 0)


@functools.cache
def build(repository: Path = REPOSITORY) -> bytes:
    """Return the zip with the repository's packages and the installed boto3."""
    entries = dict(_product(repository)) | dict(_vendored())
    return zip_files({name: entries[name].read_bytes() for name in sorted(entries)})


def _product(repository: Path) -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in _files(repository / package):
            yield path.relative_to(repository).as_posix(), path


def _vendored() -> Iterator[tuple[str, Path]]:
    for package in VENDORED:
        origin = _origin(package)
        if origin.name != "__init__.py":
            yield f"vendor/{origin.name}", origin
            continue
        for path in _files(origin.parent):
            name = path.relative_to(origin.parent.parent)
            if _is_used(name, path):
                yield f"vendor/{name.as_posix()}", path


def _origin(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} must be installed in {sys.prefix}, see requirements.txt")
    return Path(spec.origin)


def _is_used(name: Path, path: Path) -> bool:
    if name.parts[:2] != ("botocore", "data"):
        # Only boto3.resource() reads boto3/data, and the product uses clients.
        return name.parts[:2] not in {("boto3", "data"), ("boto3", "examples")}
    if len(name.parts) == 3:
        return True
    return name.parts[2] in SERVICES and path.parent == _newest(path.parent.parent) and "examples" not in name.stem


@functools.cache
def _newest(service: Path) -> Path:
    # botocore has every version of an API (eight of EC2's), and clients use the newest.
    return max(path for path in service.iterdir() if path.is_dir())


def _files(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            if path.name not in _SKIPPED_DIRECTORIES:
                yield from _files(path)
        elif path.suffix != ".pyc" and not path.name.startswith("."):
            yield path


def zip_files(contents: Mapping[str, bytes]) -> bytes:
    """Return a zip of the files; the same contents give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, _OLDEST_DATE)
            entry.create_system = 3  # Unix, whatever system builds it
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()
