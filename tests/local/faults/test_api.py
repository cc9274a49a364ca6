"""Test the file of the faults that are injected into AWS's API."""

from pathlib import Path

from local.control_plane.api_faults import FILE, ApiFault, read_faults
from local.faults import api

ALL = ApiFault(kind="throttle", fraction=0.5)
TABLE = ApiFault(kind="throttle", service="dynamodb")


def test_new_fault_replaces_one_of_the_same_kind_and_service(tmp_path: Path) -> None:
    api.add_fault(tmp_path, ALL)
    api.add_fault(tmp_path, TABLE)
    api.add_fault(tmp_path, ApiFault(kind="throttle", fraction=0.9, seed=2))
    assert read_faults(tmp_path / FILE) == (TABLE, ApiFault(kind="throttle", fraction=0.9, seed=2))
    api.remove_fault(tmp_path, ApiFault(kind="throttle"))
    assert read_faults(tmp_path / FILE) == (TABLE,)


def test_all_faults_can_be_removed_twice(tmp_path: Path) -> None:
    api.add_fault(tmp_path, ALL)
    api.remove_all_faults(tmp_path)
    api.remove_all_faults(tmp_path)
    assert read_faults(tmp_path / FILE) == ()
