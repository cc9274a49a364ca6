"""Acknowledge the cdk-nag findings (NIST, PCI DSS, HIPAA) that a hardened cluster accepts.

docs/security.md also lists each reason; a test compares the two.
"""

from collections.abc import Mapping
from typing import Final

import aws_cdk as cdk
from constructs import Construct

PACKS: Final = ("NIST.800.53.R5", "PCI.DSS.321", "HIPAA.Security")
ACKNOWLEDGED: Final[Mapping[str, str]] = {
    "DynamoDBInBackupPlan": "the agents rebuild every record, and point-in-time recovery has the last 35 days",
    "EC2RestrictedCommonPorts": "the only sources are the security groups of the cluster's own nodes",
    "S3BucketLoggingEnabled": "CloudTrail's data events name who read what, where the account records them",
    "S3BucketReplicationEnabled": "checkpoints can be computed again; old versions are kept for 14 days",
    "VPCDefaultSecurityGroupClosed": "nothing is in the default group; only a Lambda function could empty its rules",
    "VPCNoUnrestrictedRouteToIGW": "the public subnet contains only the NAT gateway, and no node",
}
"""Rules by name, in all packs that contain them, with the reason."""


def acknowledge_rules(cluster: Construct) -> None:
    """Acknowledge the rules for all resources of a hardened cluster."""
    cdk.Validations.of(cluster).acknowledge(
        *(
            cdk.Acknowledgment(id=f"{pack}::{pack}-{rule}", reason=reason)
            for pack in PACKS
            for rule, reason in ACKNOWLEDGED.items()
        )
    )
