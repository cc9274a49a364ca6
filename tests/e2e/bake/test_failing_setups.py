"""Check that a replacement whose setup hangs, fails or fills the disk gets no job, and that the user learns why.

``make soak`` runs it, after test_bake.py and in its cluster.
"""

import re

import pytest

from tests.e2e.bake.setup_runs import SETUP_FILE, has_failed
from tests.e2e.support.deployed_cluster import NODES, aliases
from tests.e2e.support.laptop import Laptop

pytestmark = pytest.mark.soak

TIMEOUT = "1m"
FILL = """\
fallocate --length $(($(df --output=avail --block-size=1 / | tail -1) - 4096)) /var/filling || true
head -c 1M /dev/zero >/var/more
"""


@pytest.mark.parametrize(
    ("script", "why"),
    [
        pytest.param("sleep infinity\n", "exceeded its deadline", id="hangs"),
        pytest.param("echo no package of that name\nexit 1\n", "no package of that name", id="fails"),
        pytest.param(FILL, "No space left on device", id="fills the disk"),
    ],
)
def test_failed_setup_of_a_replacement_is_reported(laptop: Laptop, script: str, why: str) -> None:
    (laptop.checkout / SETUP_FILE).write_text(f"#!/bin/bash\nset -euo pipefail\n{script}")
    laptop.set(setup_timeout=TIMEOUT)
    laptop.run("cdk", "deploy")
    failed = laptop.replace(NODES, is_back=has_failed)
    said = laptop.run("dlcluster", "status")
    line = next(line for line in said.splitlines() if failed in line)
    assert line.endswith("running, setup failed")
    told = rf"^worker{NODES}: setup [0-9a-f]{{12}} failed, so no job runs there \(dlcluster why shows .* last lines\)$"
    assert re.search(told, said, re.MULTILINE), said
    assert why in laptop.run("dlcluster", "why")
    laptop.wait_for_job_on(*aliases()[:-1])
