"""Let this folder's cluster read secrets, one of which does not exist, and parts of the user's buckets."""

import pytest


@pytest.fixture(scope="session")
def extra_settings() -> tuple[str, ...]:
    secrets = "secrets=ssm:/team/wandb,secretsmanager:team/hub,ssm:/team/absent"
    return ("-c", secrets, "-c", "data_buckets=team-data/vision,team-results/ours:rw")
