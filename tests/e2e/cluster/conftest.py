"""Let this part's cluster read secrets, one of which does not exist."""

import pytest


@pytest.fixture(scope="session")
def more_settings() -> tuple[str, ...]:
    return ("-c", "secrets=ssm:/team/wandb,secretsmanager:team/hub,ssm:/team/absent")
