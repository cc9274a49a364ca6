"""Test that the master learns the mount name of a Lustre file system, whatever FSx answers, and however late."""

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from bootstrap.shared_storage.lookup import FileSystemLookup

ID = "fs-0123456789abcdef0"


def lookup(*answers: dict[str, Any] | ClientError) -> FileSystemLookup:
    """Return a lookup whose queries FSx answers with these file systems or errors in turn; it may query at once."""
    following, hours = iter(answers), iter(range(0, 10**9, 3600))
    config: Any = SimpleNamespace(shared_storage=f"lustre:{ID}", shared_storage_resource=None)

    def describe(FileSystemIds: list[str]) -> dict[str, Any]:  # noqa: N803
        assert FileSystemIds == [ID]
        answer = next(following)
        if isinstance(answer, ClientError):
            raise answer
        return {"FileSystems": [answer]}

    clients: Any = SimpleNamespace(fsx=SimpleNamespace(describe_file_systems=describe))
    return FileSystemLookup(config, clients, monotonic=lambda: float(next(hours)))


def test_mount_name_comes_from_the_description() -> None:
    assert lookup({"LustreConfiguration": {"MountName": "abcdefgh"}}).find() == f"lustre:{ID}:abcdefgh"


def test_file_system_of_another_type_is_reported_and_looked_up_again(caplog: pytest.LogCaptureFixture) -> None:
    windows = {"FileSystemType": "WINDOWS", "WindowsConfiguration": {}}
    found = lookup(windows, {"FileSystemType": "LUSTRE", "LustreConfiguration": {"MountName": "fsx"}})
    assert found.find() == ""
    assert f"{ID} has no mount name, its type is WINDOWS" in caplog.text
    assert found.find() == f"lustre:{ID}:fsx"


@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException", "FileSystemNotFound"])
def test_refused_query_is_logged_once_and_repeated_until_it_is_answered(
    caplog: pytest.LogCaptureFixture, code: str
) -> None:
    refusal = ClientError({"Error": {"Code": code, "Message": "no"}}, "DescribeFileSystems")
    found = lookup(refusal, refusal, {"LustreConfiguration": {"MountName": "abcdefgh"}})
    assert [found.find(), found.find(), found.find()] == ["", "", f"lustre:{ID}:abcdefgh"]
    [record] = caplog.records
    assert code in record.getMessage()
    assert "\n" not in caplog.text.strip()
    assert record.exc_info is None
