"""Test that the default zone stays, whatever the region lists: the real command line with the local control plane.

The control plane lists the zones in another order each time, including a Local Zone.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.settings.network import zones_context_key
from tests.local.control_plane.harness import REGION, Aws, serving
from tests.stacks.command_line import REPOSITORY, Cdk

SETTINGS = {"worker_count": "0", "instance_type": "c5.large"}
DEPLOY = "deploy --require-approval never"


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """Serve an account that is bootstrapped for the CDK."""
    directory = tmp_path_factory.mktemp("aws")
    with serving(directory / "requests.jsonl") as aws:
        command = Cdk.in_copy(aws, directory)
        status, output = command.run("bootstrap", **SETTINGS, availability_zone="us-east-1a", ami="ami-01234567")
        assert status == 0, output
        assert not command.looked_up.exists()
        yield aws


def changes(cdk: Cdk, command: str = "", **settings: str) -> None:
    """Return a deploy that has something to do but leaves the network unchanged."""
    _, (vpcs, events) = cdk.describe()
    status, output = cdk.run(f"{DEPLOY} {command}", **SETTINGS | settings)
    assert status == 0, output
    status_of_stack, (vpcs_after, events_after) = cdk.describe()
    assert (status_of_stack, vpcs_after) == ("UPDATE_COMPLETE", vpcs)
    assert events_after > events


def zones_of_subnets(cdk: Cdk) -> set[str]:
    mine = [{"Name": "tag:aws:cloudformation:stack-name", "Values": [cdk.cluster]}]
    return {subnet["AvailabilityZone"] for subnet in cdk.aws.client("ec2").describe_subnets(Filters=mine)["Subnets"]}


@pytest.mark.soak
def test_cluster_in_the_default_zone_can_always_be_deployed_again(aws: Aws, tmp_path: Path) -> None:
    cdk = Cdk.in_copy(aws, tmp_path)
    before = (REPOSITORY / "cdk.context.json").exists()
    cdk.create(**SETTINGS)
    account = cdk.aws.client("sts").get_caller_identity()["Account"]
    pinned = json.loads(cdk.looked_up.read_text())[zones_context_key(account, REGION)]
    # This makes the rest meaningful: simply taking the first, by place or by name, would give another zone.
    assert pinned[0] != "us-east-1a"
    assert min(pinned) == "us-east-1-bos-1a"
    assert zones_of_subnets(cdk) == {"us-east-1a"}
    # For another checkout, or one that is not kept, the region lists its zones in another order.
    cdk.looked_up.unlink()
    changes(cdk, root_volume_gib="210")
    assert json.loads(cdk.looked_up.read_text())[zones_context_key(account, REGION)] != pinned
    # The recorded value may be written out.
    changes(cdk, root_volume_gib="220", availability_zone="us-east-1a")
    assert zones_of_subnets(cdk) == {"us-east-1a"}
    assert (REPOSITORY / "cdk.context.json").exists() == before


@pytest.mark.soak
def test_zone_chosen_by_cloudformation_is_reported_once(aws: Aws, tmp_path: Path) -> None:
    cdk = Cdk.in_copy(aws, tmp_path, cluster="unpinned")
    network = cdk.checkout / "stacks/network/zone.py"
    text = network.read_text()
    # An earlier release had this, and so does a template made without credentials.
    network.write_text(text.replace("    return first_zone(found.value, region)\n", "    return None\n"))
    cdk.create(**SETTINGS)
    network.write_text(text)
    status, output = cdk.run(DEPLOY, **SETTINGS)
    assert (status, "availability_zone of a running cluster cannot change, got us-east-1a" in output) == (1, True)
    [parameter] = [
        parameter["ParameterKey"]
        for parameter in cdk.stacks.cloudformation.describe_stacks(StackName=cdk.cluster)["Stacks"][0]["Parameters"]
        if parameter["ParameterValue"] == "unpinned"
    ]
    [zone] = zones_of_subnets(cdk)
    changes(cdk, f"--parameters {parameter}={zone}", root_volume_gib="200")
    changes(cdk, root_volume_gib="210")
