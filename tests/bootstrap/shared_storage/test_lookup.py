"""Test that the master learns the mount name of a Lustre file system, whatever FSx answers."""

from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.shared_storage.lookup import FileSystemLookup

ID = "fs-0123456789abcdef0"


def lookup(*answers: dict[str, Any]) -> FileSystemLookup:
    """Return a lookup whose queries FSx answers with these file systems in turn; it may query at once."""
    following, hours = iter(answers), iter(range(0, 10**9, 3600))
    config: Any = SimpleNamespace(shared_storage=f"lustre:{ID}", shared_storage_resource=None)
    fsx = SimpleNamespace(describe_file_systems=lambda FileSystemIds: {"FileSystems": [next(following)]})  # noqa: N803
    clients: Any = SimpleNamespace(fsx=fsx)
    return FileSystemLookup(config, clients, monotonic=lambda: float(next(hours)))


def test_the_mount_name_comes_from_the_description() -> None:
    assert lookup({"LustreConfiguration": {"MountName": "abcdefgh"}}).find() == f"lustre:{ID}:abcdefgh"


def test_file_system_of_another_type_is_reported_and_looked_up_again(caplog: pytest.LogCaptureFixture) -> None:
    windows = {"FileSystemType": "WINDOWS", "WindowsConfiguration": {}}
    found = lookup(windows, {"FileSystemType": "LUSTRE", "LustreConfiguration": {"MountName": "fsx"}})
    assert found.find() == ""
    assert f"{ID} has no mount name, its type is WINDOWS" in caplog.text
    assert found.find() == f"lustre:{ID}:fsx"
