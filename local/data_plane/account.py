"""Read from the control plane what nodes learn of their account, for their metadata."""

import time
from collections.abc import Mapping
from typing import Any

import boto3


class AccountReader:
    """Reads what nodes learn of their account: region, key pairs, roles and credentials, cached while valid."""

    def __init__(self, session: boto3.Session) -> None:
        self._ec2 = session.client("ec2")
        self._iam = session.client("iam")
        self._sts = session.client("sts")
        self.region = self._ec2.meta.region_name
        self.account = self._sts.get_caller_identity()["Account"]
        self._issued: dict[str, Mapping[str, Any]] = {}

    def public_key(self, name: str | None) -> str:
        if name is None:
            return ""
        pairs = self._ec2.describe_key_pairs(KeyNames=[name], IncludePublicKey=True)["KeyPairs"]
        return pairs[0].get("PublicKey", "").strip()

    def role(self, profile_arn: str | None) -> Mapping[str, Any] | None:
        """Return the role of an instance profile; None without a profile or if the profile has no role."""
        if profile_arn is None:
            return None
        name = profile_arn.rsplit("/", 1)[1]
        profile: Mapping[str, Any] = self._iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
        return next(iter(profile["Roles"]), None)

    def credentials(self, role_arn: str, instance_id: str) -> Mapping[str, Any]:
        """Return temporary credentials of an instance, renewed an hour before they expire."""
        issued = self._issued.get(instance_id)
        if issued is None or issued["Expiration"].timestamp() - time.time() < 3600:
            issued = self._sts.assume_role(RoleArn=role_arn, RoleSessionName=instance_id, DurationSeconds=6 * 3600)[
                "Credentials"
            ]
            self._issued[instance_id] = issued
        return issued
