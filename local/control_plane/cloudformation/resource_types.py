"""Add resource types that moto does not know, and apply them as far as moto can.

Also append ``:*`` to a log group's ARN, as CloudFormation does to cover its streams ("AWS::Logs::LogGroup", return
values).
"""

import json
from typing import Any

from moto.autoscaling.models import autoscaling_backends
from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ValidationError
from moto.core.common_models import CloudFormationModel
from moto.logs.models import LogGroup

from local.control_plane.autoscaling import lifecycle_hooks
from local.control_plane.buckets import BUCKET_POLICIES
from local.control_plane.ec2 import placement_groups
from local.control_plane.moto_patching import wrap
from local.control_plane.scheduler.schedules import Schedule, ScheduleError

_Properties = dict[str, Any]


def install() -> None:
    """Patch moto: make it find the types below, because moto caches the list of its models."""
    for cached in (parsing.get_model_list, parsing.get_model_map, parsing.get_name_type_map):
        cached.cache_clear()
    wrap(LogGroup, "get_cfn_attribute", _log_group_attribute)


def _log_group_attribute(original: Any, group: LogGroup, name: str) -> str:
    value: str = original(group, name)
    return f"{value}:*" if name == "Arn" else value


class _Accepted:
    """Accepts a resource whose reference is its name; subclasses may give it an effect."""

    def __init__(self, name: str, properties: _Properties):
        self.name = name
        self.properties = properties

    @property
    def physical_resource_id(self) -> str:
        return self.name

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr == "GroupName"

    def get_cfn_attribute(self, _attribute: str) -> str:
        return self.name

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: _Properties, account_id: str, region_name: str, **_: Any
    ) -> "_Accepted":
        resource = cls(resource_name, cloudformation_json["Properties"])
        resource.put(account_id, region_name)
        return resource

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: "_Accepted",
        new_resource_name: str,
        cloudformation_json: _Properties,
        account_id: str,
        region_name: str,
    ) -> "_Accepted":
        original_resource.delete(account_id, region_name)
        original_resource.properties = cloudformation_json["Properties"]
        original_resource.put(account_id, region_name)
        return original_resource

    def is_created(self) -> bool:
        return True

    def put(self, account: str, region: str) -> None:
        """Apply the resource."""

    def delete(self, account: str, region: str) -> None:
        """End the resource's effect."""


class _PlacementGroup(_Accepted, CloudFormationModel):
    # moto derives an object's service from the second part of its module's name
    __module__ = "moto.ec2"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::EC2::PlacementGroup"

    def put(self, account: str, region: str) -> None:
        placement_groups.create(account, region, self.name, self.properties["Strategy"])

    def delete(self, account: str, region: str) -> None:
        placement_groups.delete(account, region, self.name)


class _BucketPolicy(_Accepted, CloudFormationModel):
    __module__ = "moto.s3"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::S3::BucketPolicy"

    def put(self, _account: str, _region: str) -> None:
        BUCKET_POLICIES[self.properties["Bucket"]] = json.dumps(self.properties["PolicyDocument"])

    def delete(self, _account: str, _region: str) -> None:
        BUCKET_POLICIES.pop(self.properties["Bucket"], None)


class _QueuePolicy(_Accepted, CloudFormationModel):
    __module__ = "moto.sqs"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SQS::QueuePolicy"


class _LifecycleHook(_Accepted, CloudFormationModel):
    __module__ = "moto.autoscaling"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::AutoScaling::LifecycleHook"

    def put(self, account: str, region: str) -> None:
        specification = {"LifecycleHookName": self.name} | self.properties
        lifecycle_hooks.put(
            autoscaling_backends[account][region], self.properties["AutoScalingGroupName"], specification
        )

    def delete(self, account: str, region: str) -> None:
        group = self.properties["AutoScalingGroupName"]
        autoscaling_backends[account][region].delete_lifecycle_hook(group, self.name)


class _Schedule(_Accepted, CloudFormationModel):
    __module__ = "moto.scheduler"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::Scheduler::Schedule"

    def put(self, _account: str, region: str) -> None:
        try:
            self.running = Schedule(self.properties, region)
        except ScheduleError as error:
            raise ValidationError(message=str(error)) from error

    def delete(self, _account: str, _region: str) -> None:
        self.running.end()
