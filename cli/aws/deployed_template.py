"""Read the template of a deployed cluster: the sizes that its groups should have, and its parts that cost money."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bootstrap.aws.group_sizes import ClusterSizes, GroupSize
from bootstrap.contract import NODE_TYPES, NodeType, group_name
from cli.errors import ClusterError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

GROUP_TYPE: Final = "AWS::AutoScaling::AutoScalingGroup"
SCHEDULE_TYPE: Final = "AWS::Scheduler::Schedule"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeployedTemplate:
    """CloudFormation's template of a cluster."""

    stack_name: str
    resources: Mapping[str, Mapping[str, Any]]

    def sizes(self, cluster_name: str) -> ClusterSizes:
        """Return the sizes that the template declares for both groups. Raises ClusterError."""
        return {node_type: self._size(group) for node_type, group in self.groups(cluster_name).items()}

    def declared_sizes(self, cluster_name: str) -> ClusterSizes:
        """Return the sizes of a running cluster: those set at a Capacity Block's start, or else the groups'."""
        return {**self.sizes(cluster_name), **self._sizes_at_start(cluster_name)}

    def _sizes_at_start(self, cluster_name: str) -> ClusterSizes:
        """Return the nonzero sizes that the template's schedules set."""
        requests = [json.loads(text) for text in map(_input, self.properties(SCHEDULE_TYPE)) if text]
        by_group = {str(found.get("AutoScalingGroupName")): found for found in requests if found.get("MaxSize")}
        names = {node_type: group_name(cluster_name, node_type) for node_type in NODE_TYPES}
        return {node_type: self._size(by_group[name]) for node_type, name in names.items() if name in by_group}

    def groups(self, cluster_name: str) -> Mapping[NodeType, Mapping[str, Any]]:
        """Return the properties of both groups. Raises ClusterError."""
        by_name = {str(group.get("AutoScalingGroupName")): group for group in self.properties(GROUP_TYPE)}
        names = {node_type: group_name(cluster_name, node_type) for node_type in NODE_TYPES}
        if missing := sorted(set(names.values()) - by_name.keys()):
            raise ClusterError(f"the template of stack {self.stack_name} has no group {' and '.join(missing)}")
        return {node_type: by_name[name] for node_type, name in names.items()}

    def properties(self, resource_type: str) -> Iterator[Mapping[str, Any]]:
        """Yield the properties of each resource of a type."""
        for resource in self.resources.values():
            if resource.get("Type") == resource_type:
                yield resource.get("Properties", {})

    def named(self, value: Any, resource_type: str) -> Mapping[str, Mapping[str, Any]]:
        """Return, by logical ID, the properties of each resource of a type to which a value of the template refers."""
        referenced = {name: self.resources[name] for name in sorted(set(_references(value))) if name in self.resources}
        return {
            name: resource.get("Properties", {})
            for name, resource in referenced.items()
            if resource.get("Type") == resource_type
        }

    def _size(self, group: Mapping[str, Any]) -> GroupSize:
        try:
            least, desired, most = (int(group[name]) for name in ("MinSize", "DesiredCapacity", "MaxSize"))
        except (KeyError, TypeError, ValueError) as error:
            raise ClusterError(f"the template of stack {self.stack_name} has no usable sizes: {error!r}") from error
        return GroupSize(min_size=least, desired_capacity=desired, max_size=most)


def _input(schedule: Mapping[str, Any]) -> str | None:
    """Return the parameters of a schedule's call; None if they contain references."""
    text = schedule.get("Target", {}).get("Input")
    return text if isinstance(text, str) else None


def _references(value: Any) -> Iterator[str]:
    """Yield the logical ID of each Ref and Fn::GetAtt at any depth."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name == "Ref" and isinstance(inner, str):
                yield inner
            elif name == "Fn::GetAtt" and isinstance(inner, list) and inner:
                yield str(inner[0])
            else:
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def read_template(cloudformation: "CloudFormationClient", stack_name: str) -> DeployedTemplate:
    """Return the template of a stack. Raises ClusterError."""
    # The stubs declare text, but boto3 returns an object for a JSON template.
    body: Any = cloudformation.get_template(StackName=stack_name, TemplateStage="Original")["TemplateBody"]
    if not isinstance(body, Mapping) or not isinstance(body.get("Resources"), Mapping):
        raise ClusterError(f"the template of stack {stack_name} must be JSON with resources, as cdk deploy writes it")
    return DeployedTemplate(stack_name=stack_name, resources=body["Resources"])
