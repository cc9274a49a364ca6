"""Deploy the private cluster, with a setup for each node, and destroy it without a change to the company's VPC."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from local.run.user import User, deploy_arguments
from tests.e2e.private.existing_vpc import ExistingVpc, PrivateCluster
from tests.e2e.support.checkouts import copy_checkout

NODES = 3
SETUP = {
    "node-setup.sh": "#!/bin/bash\necho $(id -un) set up a $DEEPLEARNING_NODE_TYPE | tee -a /srv/set-up\n",
    "node-requirements.txt": "numpy\n",
}
"""The user's files for each node; the requirement is in the image, because nodes have no internet."""


@contextmanager
def deployed_cluster(
    user: User, vpc: ExistingVpc, settings: Sequence[str], directory: Path
) -> Iterator[PrivateCluster]:
    """Deploy from a copy of the project below a directory, and destroy the cluster."""
    made = PrivateCluster(user=replace(user, ssh_config=directory / "config"), checkout=copy_checkout(directory))
    before = vpc.description()
    for name, content in SETUP.items():
        (made.checkout / name).write_text(content)
    deploy = ["cdk", *deploy_arguments(nodes=NODES), *settings]
    # Preflight fails because of the problems that this expects.
    printed = made.try_in_checkout("dlcluster", "preflight", *deploy[deploy.index("-c") :]).stdout
    [finding] = re.findall(r"^\w+ +subnets +(.*)", printed, re.MULTILINE)
    assert finding.startswith(f"{vpc.private} has no default route: nodes reach no PyPI for requirements: "), printed
    assert f"it includes the endpoints of {vpc.vpc_id}" in printed
    assert f"the policy of {vpc.key} does not let logs.us-east-1.amazonaws.com use it: add to its policy: " in printed
    try:
        made.in_checkout(*deploy)
        made.write_ssh_config()
        yield made
    finally:
        made.in_checkout("cdk", "destroy", "--force", *settings)
    assert vpc.description() == before
