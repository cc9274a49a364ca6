from pathlib import Path

from local.aws.api_faults import FILE, ApiFault, read_faults
from local.faults import api

ALL = ApiFault(kind="throttle", share=0.5)
TABLE = ApiFault(kind="throttle", service="dynamodb")


def test_a_fault_takes_the_place_of_its_like_and_ends_alone(tmp_path: Path) -> None:
    api.put(tmp_path, ALL)
    api.put(tmp_path, TABLE)
    api.put(tmp_path, ApiFault(kind="throttle", share=0.9, seed=2))
    assert read_faults(tmp_path / FILE) == (TABLE, ApiFault(kind="throttle", share=0.9, seed=2))
    api.take_back(tmp_path, ApiFault(kind="throttle"))
    assert read_faults(tmp_path / FILE) == (TABLE,)


def test_healing_ends_all_and_may_be_repeated(tmp_path: Path) -> None:
    api.put(tmp_path, ALL)
    api.heal_all(tmp_path)
    api.heal_all(tmp_path)
    assert read_faults(tmp_path / FILE) == ()
