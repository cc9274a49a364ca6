import pytest

from local.aws.cloudformation.waits import seconds


@pytest.mark.parametrize(("duration", "expected"), [("PT15M", 900), ("PT1H", 3600), ("PT30S", 30), ("PT1H2M3S", 3723)])
def test_durations_are_understood(duration: str, expected: int) -> None:
    assert seconds(duration) == expected


@pytest.mark.parametrize("duration", ["15", "PT", "P1D", ""])
def test_fails_when_duration_is_not_of_that_form(duration: str) -> None:
    with pytest.raises(ValueError, match="invalid timeout"):
        seconds(duration)
