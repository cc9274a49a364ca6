"""Give the healing cluster a shared directory, whose mount target is created after the nodes."""

import pytest

from local.faults import Faults


@pytest.fixture(scope="session")
def extra_settings() -> tuple[str, ...]:
    return ("-c", "shared_storage=efs")


@pytest.fixture(scope="session")
def storage_outage() -> None:
    """Remove the mount targets; a test ends the outage."""
    Faults.current().storage_outage()


@pytest.fixture(scope="session")
def deployed(storage_outage: None, deployed: None) -> None:
    """Deploy the cluster during the storage outage."""
