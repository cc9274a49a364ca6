"""The cluster of this part may read secrets, one of which nobody stores."""

import pytest


@pytest.fixture(scope="session")
def more_settings() -> tuple[str, ...]:
    return ("-c", "secrets=ssm:/team/wandb,secretsmanager:team/hub,ssm:/team/absent")
