"""Check the synthesized template for what must never regress."""

import json
import re
from collections.abc import Callable

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension

from bootstrap import contract
from tests.stacks.template_parts import Template, launch_data, logical_id, resources

Synthesize = Callable[..., Template]


def test_template_is_as_reviewed(template: Template, snapshot: SnapshotAssertion) -> None:
    text = re.sub(r"[0-9a-f]{64}", "ASSET_HASH", json.dumps(template))
    text = re.sub(rf'"{contract.VERSION}:[0-9a-f]{{12}}"', '"RELEASE"', text)
    assert json.loads(text) == snapshot(extension_class=JSONSnapshotExtension)


def test_release_is_that_of_the_bundle_that_new_nodes_fetch(template: Template) -> None:
    version, _, bundle = template["Outputs"][contract.RELEASE_OUTPUT]["Value"].partition(":")
    assert version == contract.VERSION
    assert re.search(rf"{contract.RELEASES_DIR}/{bundle}[0-9a-f]{{52}}\b", json.dumps(template))


def allow_list(template: Template) -> dict[str, list[str]]:
    return {"Fn::GetAtt": [logical_id(template, "AWS::EC2::PrefixList", "AllowList"), "PrefixListId"]}


def test_deploy_has_no_entries_of_the_allow_list_to_restore(template: Template) -> None:
    [made] = [r["Properties"] for r in resources(template, "AWS::EC2::PrefixList")]
    assert made["MaxEntries"] == 20
    assert "Entries" not in made
    assert template["Outputs"][contract.ALLOW_LIST_OUTPUT]["Value"] == allow_list(template)


def test_each_ssh_location_is_a_rule_of_one_group(synthesize: Synthesize) -> None:
    blocks = ("203.0.113.0/24", "198.51.100.9/32")
    [group] = [
        r["Properties"]
        for r in resources(synthesize(ssh_location=blocks), "AWS::EC2::SecurityGroup")
        if "SecurityGroupIngress" in r["Properties"]
    ]
    assert [(r["CidrIp"], r["FromPort"]) for r in group["SecurityGroupIngress"]] == [(b, 22) for b in blocks]


def test_nothing_is_open_to_the_world(template: Template) -> None:
    inline = [
        rule
        for group in resources(template, "AWS::EC2::SecurityGroup")
        for rule in group["Properties"].get("SecurityGroupIngress", [])
    ]
    separate = [r["Properties"] for r in resources(template, "AWS::EC2::SecurityGroupIngress")]
    assert [(r["CidrIp"], r["FromPort"], r["ToPort"]) for r in inline] == [("203.0.113.0/24", 22, 22)]
    [allowed] = [r for r in separate if "SourceSecurityGroupId" not in r]
    assert (allowed["SourcePrefixListId"], allowed["FromPort"], allowed["ToPort"]) == (allow_list(template), 22, 22)
    assert not any("CidrIp" in rule for rule in separate)


def test_members_reach_each_other_both_ways_with_all_traffic(template: Template) -> None:
    for kind, peer in (
        ("AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
        ("AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
    ):
        rules = [r["Properties"] for r in resources(template, kind) if "SourcePrefixListId" not in r["Properties"]]
        pairs = {(r["GroupId"]["Fn::GetAtt"][0], r[peer]["Fn::GetAtt"][0]) for r in rules}
        names = ("Master", "Worker", "Efa")
        *groups, efa = (logical_id(template, "AWS::EC2::SecurityGroup", f"Security{n}") for n in names)
        assert pairs == {(efa, efa), *((a, b) for a in groups for b in groups)}
        assert {r["IpProtocol"] for r in rules} == {"-1"}


def test_no_ingress_without_ssh_location(synthesize: Synthesize) -> None:
    groups = resources(synthesize(), "AWS::EC2::SecurityGroup")
    assert len(groups) == 4
    assert not any("SecurityGroupIngress" in group["Properties"] for group in groups)


def test_only_the_master_is_in_the_public_subnet_and_the_admin_group(template: Template) -> None:
    public = logical_id(template, "AWS::EC2::Subnet", "Public")
    admin = template["Outputs"][contract.ADMIN_SECURITY_GROUP_OUTPUT]["Value"]
    for name, is_master in (("Master", True), ("Worker", False)):
        group = template["Resources"][logical_id(template, "AWS::AutoScaling::AutoScalingGroup", name)]
        assert (group["Properties"]["VPCZoneIdentifier"] == [{"Ref": public}]) is is_master
        data = template["Resources"][logical_id(template, "AWS::EC2::LaunchTemplate", name)]
        assert (admin in data["Properties"]["LaunchTemplateData"]["SecurityGroupIds"]) is is_master


def test_one_zone_with_one_nat_gateway(template: Template) -> None:
    zones = {json.dumps(s["Properties"]["AvailabilityZone"]) for s in resources(template, "AWS::EC2::Subnet")}
    assert len(zones) == 1
    assert len(resources(template, "AWS::EC2::NatGateway")) == 1
    public = template["Resources"][logical_id(template, "AWS::EC2::Subnet", "Public")]
    assert public["Properties"]["MapPublicIpOnLaunch"] is True


def test_chosen_zone_is_used(synthesize: Synthesize) -> None:
    subnets = resources(synthesize(availability_zone="eu-west-1c"), "AWS::EC2::Subnet")
    assert [s["Properties"]["AvailabilityZone"] for s in subnets] == ["eu-west-1c", "eu-west-1c"]


def test_no_lambda_function_is_made(template: Template) -> None:
    assert not resources(template, "AWS::Lambda::Function")


def test_metadata_needs_a_token_and_stays_on_the_host(template: Template) -> None:
    assert [data["MetadataOptions"] for data in launch_data(template)] == [
        {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    ] * 2


def test_root_volume_is_encrypted_on_ubuntus_own_device(synthesize: Synthesize) -> None:
    template = synthesize(root_volume_gib=200)
    for data in launch_data(template):
        [volume] = data["BlockDeviceMappings"]
        assert volume["DeviceName"] == "/dev/sda1"
        assert volume["Ebs"] == {
            "Encrypted": True,
            "VolumeType": "gp3",
            "VolumeSize": 200,
            "DeleteOnTermination": True,
        }
    assert template["Outputs"][contract.LOGIN_USER_OUTPUT]["Value"] == "ubuntu"


def test_log_group_outlives_the_stack_under_a_name_of_its_own(template: Template) -> None:
    [group] = resources(template, "AWS::Logs::LogGroup")
    assert group["DeletionPolicy"] == "Retain"
    assert group["Properties"]["RetentionInDays"] == 14
    assert "LogGroupName" not in group["Properties"]


def test_table_is_deleted_with_the_stack(template: Template) -> None:
    [table] = resources(template, "AWS::DynamoDB::Table")
    assert table["DeletionPolicy"] == "Delete"
    assert table["Properties"]["KeySchema"] == [{"AttributeName": contract.TABLE_KEY, "KeyType": "HASH"}]


def test_bucket_is_private_encrypted_and_always_retained(template: Template) -> None:
    [bucket] = resources(template, "AWS::S3::Bucket")
    [policy] = resources(template, "AWS::S3::BucketPolicy")
    for kept in (bucket, policy):
        # Not RetainExceptOnCreate, with which rolling the creation back would delete it.
        assert (kept["DeletionPolicy"], kept["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert "BucketName" not in bucket["Properties"]
    assert {"Key": contract.CLUSTER_TAG, "Value": "deeplearning"} in bucket["Properties"]["Tags"]
    assert set(bucket["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}
    [encryption] = bucket["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}


def test_overwritten_and_deleted_objects_are_kept_for_two_weeks(template: Template) -> None:
    [bucket] = resources(template, "AWS::S3::Bucket")
    assert bucket["Properties"]["VersioningConfiguration"] == {"Status": "Enabled"}
    assert bucket["Properties"]["LifecycleConfiguration"]["Rules"] == [
        {
            "Status": "Enabled",
            "NoncurrentVersionExpiration": {"NoncurrentDays": 14},
            "ExpiredObjectDeleteMarker": True,
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        }
    ]


def test_adopted_bucket_is_used_and_left_alone(synthesize: Synthesize) -> None:
    template = synthesize(worker_count=1, bucket="kept")
    assert resources(template, "AWS::S3::Bucket") == resources(template, "AWS::S3::BucketPolicy") == []
    assert template["Outputs"][contract.BUCKET_OUTPUT]["Value"] == "kept"
    for data in launch_data(template):
        assert '"bucket": "kept"' in json.dumps(data["UserData"]).replace('\\"', '"')


NAMED = ["VPC", "InternetGateway", "Subnet", "RouteTable", "NatGateway", "EIP", "SecurityGroup"]


def test_every_part_of_the_network_has_the_clusters_name(synthesize: Synthesize) -> None:
    template = synthesize(cluster_name="vision", worker_count=1)
    names = {
        kind: sorted(
            tag["Value"]
            for part in resources(template, f"AWS::EC2::{kind}")
            for tag in part["Properties"]["Tags"]
            if tag["Key"] == "Name"
        )
        for kind in NAMED
    }
    assert names == {
        "VPC": ["vision"],
        "InternetGateway": ["vision"],
        "Subnet": ["vision-private", "vision-public"],
        "RouteTable": ["vision-private", "vision-public"],
        "NatGateway": ["vision-nat"],
        "EIP": ["vision-master", "vision-nat"],
        "SecurityGroup": ["vision-admin-ssh", "vision-efa", "vision-master", "vision-worker"],
    }
    tagged = [json.dumps(part["Properties"].get("Tags", [])) for part in template["Resources"].values()]
    assert not any("ClusterStack/" in tags for tags in tagged)


def test_groups_depend_on_the_route_to_the_internet(template: Template) -> None:
    for name, way in (("Master", "VPCGW"), ("Workers", "PrivateSubnet1DefaultRoute")):
        group = template["Resources"][logical_id(template, "AWS::AutoScaling::AutoScalingGroup", name)]
        pending, met = list(group["DependsOn"]), set()
        while pending:
            found = pending.pop()
            met.add(found)
            needs = template["Resources"][found].get("DependsOn", [])
            pending += [needs] if isinstance(needs, str) else needs
        assert any(way in logical for logical in met), met


@pytest.mark.parametrize("count", [0, 1, 5])
def test_creation_waits_for_every_node(synthesize: Synthesize, count: int) -> None:
    template = synthesize(worker_count=count)
    for name, nodes in (("Master", 1), ("Workers", count)):
        group = template["Resources"][logical_id(template, "AWS::AutoScaling::AutoScalingGroup", name)]
        sizes = {group["Properties"][k] for k in ("MinSize", "MaxSize", "DesiredCapacity")}
        assert sizes == {str(nodes)}
        if nodes:
            assert group["CreationPolicy"] == {"ResourceSignal": {"Count": nodes, "Timeout": "PT30M"}}
        else:
            assert "CreationPolicy" not in group


def test_no_deploy_replaces_nodes(template: Template) -> None:
    for group in resources(template, "AWS::AutoScaling::AutoScalingGroup"):
        assert set(group["UpdatePolicy"]) == {"AutoScalingScheduledAction"}


def test_smaller_group_ends_the_newest_nodes_first(template: Template) -> None:
    for group in resources(template, "AWS::AutoScaling::AutoScalingGroup"):
        assert group["Properties"]["TerminationPolicies"] == ["NewestInstance"]


def test_tags_reach_the_groups_and_their_nodes(template: Template) -> None:
    for name, node_type in (("Master", "master"), ("Workers", "worker")):
        group = template["Resources"][logical_id(template, "AWS::AutoScaling::AutoScalingGroup", name)]
        tags = group["Properties"]["Tags"]
        assert all(tag["PropagateAtLaunch"] for tag in tags)
        assert {tag["Key"]: tag["Value"] for tag in tags} == {
            contract.CLUSTER_TAG: "deeplearning",
            contract.NODE_TYPE_TAG: node_type,
            "Name": f"deeplearning-{node_type}",
            "team": "vision",
        }


def test_outputs_are_those_of_the_contract(template: Template) -> None:
    assert set(template["Outputs"]) == {
        contract.MASTER_GROUP_OUTPUT,
        contract.WORKER_GROUP_OUTPUT,
        contract.ADMIN_SECURITY_GROUP_OUTPUT,
        contract.CLUSTER_NAME_OUTPUT,
        contract.TABLE_OUTPUT,
        contract.LOG_GROUP_OUTPUT,
        contract.BUCKET_OUTPUT,
        contract.LOGIN_USER_OUTPUT,
        contract.NETWORKS_OUTPUT,
        contract.PRICE_OUTPUT,
        contract.RELEASE_OUTPUT,
        contract.ALLOW_LIST_OUTPUT,
    }
