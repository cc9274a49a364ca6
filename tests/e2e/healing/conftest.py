"""Give the healing cluster a shared directory, whose mount target is created after the nodes."""

import pytest

from local.faults import Faults


@pytest.fixture(scope="session")
def more_settings() -> tuple[str, ...]:
    Faults.current().storage_outage()
    return ("-c", "shared_storage=efs")
