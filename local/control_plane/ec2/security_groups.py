"""Apply a template's security group rules, whether inline or separate resources.

moto ignores inline egress rules, fails on rules without ports, lacks separate egress rules, and replaces the group when
a rule changes.
"""

from typing import Any

from moto.core.common_models import CloudFormationModel
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.security_groups import SecurityGroup

from local.control_plane.moto_patching import wrap

_Properties = dict[str, Any]


def install() -> None:
    """Patch moto: apply all rules of templates."""
    wrap(SecurityGroup, "create_from_cloudformation_json", _create_group)


class _Rule:
    """A rule that is a separate resource."""

    egress: bool

    def __init__(self, group: SecurityGroup, properties: _Properties):
        self.group = group
        self.properties = properties

    @property
    def physical_resource_id(self) -> str:
        return f"{self.group.id}|{'egress' if self.egress else 'ingress'}|{self.properties['IpProtocol']}"

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr == "Id"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: _Properties, account_id: str, region_name: str, **_: Any
    ) -> "_Rule":
        properties = cloudformation_json["Properties"]
        group = _group(ec2_backends[account_id][region_name], properties["GroupId"])
        if cls.egress:
            # in AWS a separate egress rule removes the group's default one
            group.egress_rules = [rule for rule in group.egress_rules if rule.id not in _default_rules(group)]
        _authorize(group, properties, egress=cls.egress)
        return cls(group, properties)

    def is_created(self) -> bool:
        return True

    def delete(self, _account: str, _region: str) -> None:
        """Remove the rule from its group."""
        _revoke(self.group, self.properties, egress=self.egress)


class _Ingress(_Rule, CloudFormationModel):
    # moto derives an object's service from the second part of its module's name
    __module__ = "moto.ec2"
    egress = False

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::EC2::SecurityGroupIngress"


class _Egress(_Rule, CloudFormationModel):
    __module__ = "moto.ec2"
    egress = True

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::EC2::SecurityGroupEgress"


_INLINE_EGRESS: set[str] = set()
"""IDs of the groups whose template declares egress rules."""


def _default_rules(group: SecurityGroup) -> set[str]:
    """Return the IDs of the rules that AWS, not the template, added to the group."""
    if group.id in _INLINE_EGRESS:
        return set()
    return {r.id for r in group.egress_rules if r.ip_protocol == "-1" and r.cidr_ipv4 == "0.0.0.0/0"}


def _create_group(
    original: Any, name: str, definition: _Properties, account: str, region: str, **kwargs: Any
) -> SecurityGroup:
    properties = definition["Properties"]
    no_rules: _Properties = {"SecurityGroupIngress": [], "SecurityGroupEgress": []}
    bare = definition | {"Properties": properties | no_rules}
    group: SecurityGroup = original(name, bare, account, region, **kwargs)
    _set_inline_rules(group, {}, properties)
    return group


def update(group: SecurityGroup, old: _Properties, new: _Properties) -> None:
    """Update the inline rules in place."""
    _set_inline_rules(group, old, new)


def _set_inline_rules(group: SecurityGroup, old: _Properties, new: _Properties) -> None:
    if new.get("SecurityGroupEgress") and group.id not in _INLINE_EGRESS:
        _INLINE_EGRESS.add(group.id)
        group.egress_rules = []
    for key, egress in (("SecurityGroupIngress", False), ("SecurityGroupEgress", True)):
        before, after = old.get(key, []), new.get(key, [])
        for rule in before:
            if rule not in after:
                _revoke(group, rule, egress=egress)
        for rule in after:
            if rule not in before:
                _authorize(group, rule, egress=egress)


def update_rule(rule: _Rule, _old: _Properties, new: _Properties) -> None:
    """Replace a rule in place."""
    _revoke(rule.group, rule.properties, egress=rule.egress)
    rule.group = _group(rule.group.ec2_backend, new["GroupId"])
    rule.properties = new
    _authorize(rule.group, new, egress=rule.egress)


def _group(backend: EC2Backend, group_id: str) -> SecurityGroup:
    return backend.describe_security_groups(group_ids=[group_id])[0]


def _authorize(group: SecurityGroup, rule: _Properties, *, egress: bool) -> None:
    backend: EC2Backend = group.ec2_backend
    add = backend.authorize_security_group_egress if egress else backend.authorize_security_group_ingress
    add(**_permission(group, rule))


def _revoke(group: SecurityGroup, rule: _Properties, *, egress: bool) -> None:
    backend: EC2Backend = group.ec2_backend
    remove = backend.revoke_security_group_egress if egress else backend.revoke_security_group_ingress
    remove(**_permission(group, rule))


def _permission(group: SecurityGroup, rule: _Properties) -> dict[str, Any]:
    """Translate a rule from a template's terms to those of moto's calls."""
    described = {"Description": rule["Description"]} if rule.get("Description") else {}
    ranges = [{key: rule[key]} | described for key in ("CidrIp", "CidrIpv6") if key in rule]
    peer = rule.get("SourceSecurityGroupId") or rule.get("DestinationSecurityGroupId")
    prefix_list = rule.get("SourcePrefixListId") or rule.get("DestinationPrefixListId")
    return {
        "group_name_or_id": group.id,
        "ip_protocol": str(rule["IpProtocol"]),
        "from_port": str(rule.get("FromPort", -1)),
        "to_port": str(rule.get("ToPort", -1)),
        "ip_ranges": ranges,
        "source_groups": [{"GroupId": peer} | described] if peer else [],
        "prefix_list_ids": [{"PrefixListId": prefix_list} | described] if prefix_list else [],
    }
