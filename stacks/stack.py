"""Define the stack that app.py deploys: one cluster."""

from typing import Any

import aws_cdk as cdk
from constructs import Construct

from bootstrap import contract
from stacks.cluster import DeepLearningCluster
from stacks.network.zone import network_zones
from stacks.settings.props import ClusterProps


class ClusterStack(cdk.Stack):
    """A stack named after its cluster."""

    def __init__(self, scope: Construct, construct_id: str, *, props: ClusterProps, **options: Any) -> None:
        options = {"description": contract.STACK_DESCRIPTION, **options}
        super().__init__(scope, construct_id, stack_name=props.cluster_name, tags=dict(props.tags), **options)
        self._zones = network_zones(self, props)
        self.cluster = DeepLearningCluster(self, "Cluster", props=props)
        for key, value in props.tags.items():
            cdk.Tags.of(self).add(key, value)

    @property
    def availability_zones(self) -> list[str]:
        """Return the zones of the cluster's subnets; the CDK's own list of zones would need credentials at synth."""
        return self._zones
