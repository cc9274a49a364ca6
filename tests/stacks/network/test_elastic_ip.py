"""Check the order in which CloudFormation creates and releases the master's Elastic IP address."""

from tests.stacks.template_parts import Template, logical_id


def test_address_is_created_after_the_gateway_and_released_after_the_master(template: Template) -> None:
    address_id = logical_id(template, "AWS::EC2::EIP", "MasterAddress")
    address = template["Resources"][address_id]
    assert any("PublicSubnet1DefaultRoute" in dependency for dependency in address["DependsOn"])
    users = {
        name: resource["Type"]
        for name, resource in template["Resources"].items()
        if f"'{address_id}'" in str(resource["Properties"])
    }
    assert sorted(users.values()) == ["AWS::EC2::LaunchTemplate", "AWS::IAM::Policy"]
    assert all("Master" in name for name in users)
