"""Check that a new master takes over the Elastic IP, and calls EC2 only when it must."""

from collections import Counter

import pytest
from botocore.exceptions import ClientError

from bootstrap.aws.elastic_ip import METADATA_DELAY_S
from bootstrap.cluster.termination_notice import TerminationNotice
from tests.bootstrap.booted_cluster import all_ready
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import SimulatedNode


class Address:
    """An Elastic IP of moto's, and the settings that name it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._ec2 = cluster.clients.ec2
        made = self._ec2.allocate_address(Domain="vpc")
        self.ip = made["PublicIp"]
        self.settings = {"address": self.ip, "address_allocation": made["AllocationId"]}

    @property
    def holder(self) -> str | None:
        [found] = self._ec2.describe_addresses(PublicIps=[self.ip])["Addresses"]
        return found.get("InstanceId") or None


@pytest.fixture
def address(cluster: SimulatedCluster) -> Address:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    return Address(cluster)


@pytest.fixture
def master(cluster: SimulatedCluster, address: Address) -> SimulatedNode:
    return cluster.boot_node("master", settings=address.settings)


def run_passes(cluster: SimulatedCluster, node: SimulatedNode, *, seconds: float) -> None:
    for _ in range(int(seconds)):
        node.agent.run_pass()
        cluster.clock.now += 1.0


def test_master_has_the_address_before_it_is_ready(
    cluster: SimulatedCluster, address: Address, master: SimulatedNode
) -> None:
    cluster.run([master], until=all_ready([master]))
    assert address.holder == master.instance_id


def test_address_is_reassociated_only_if_metadata_differs(
    cluster: SimulatedCluster, master: SimulatedNode, address: Address, calls: Counter[str]
) -> None:
    run_passes(cluster, master, seconds=METADATA_DELAY_S)
    assert calls["AssociateAddress"] == 1
    run_passes(cluster, master, seconds=1)
    assert calls["AssociateAddress"] == 2
    master.metadata.public_address = "198.51.100.7"
    run_passes(cluster, master, seconds=METADATA_DELAY_S)
    assert calls["AssociateAddress"] == 3
    master.metadata.public_address = address.ip
    run_passes(cluster, master, seconds=3 * METADATA_DELAY_S)
    assert calls["AssociateAddress"] == 3


def test_address_that_the_master_has_is_not_associated_again(
    cluster: SimulatedCluster, master: SimulatedNode, address: Address, calls: Counter[str]
) -> None:
    master.metadata.public_address = address.ip
    cluster.run([master], until=all_ready([master]))
    assert calls["AssociateAddress"] == 0


def test_new_master_takes_the_address_from_the_last_one(
    cluster: SimulatedCluster, master: SimulatedNode, address: Address
) -> None:
    cluster.run([master], until=all_ready([master]))
    cluster.set_lifecycle_state(master.instance_id, "Terminating:Wait")
    cluster.clients.autoscaling.set_desired_capacity(AutoScalingGroupName="digits-master", DesiredCapacity=1)
    new = cluster.boot_replacement("master", of=[master], settings=address.settings)
    run_passes(cluster, new, seconds=5)
    # As long as the old one may still work, it keeps the address.
    assert address.holder == master.instance_id
    cluster.clients.ec2.terminate_instances(InstanceIds=[master.instance_id])
    cluster.drop_from_group(master.instance_id)
    run_passes(cluster, new, seconds=5)
    assert address.holder == new.instance_id


def test_terminating_master_does_not_take_the_address(
    cluster: SimulatedCluster, master: SimulatedNode, address: Address
) -> None:
    master.metadata.notice = TerminationNotice(is_terminating=True)
    run_passes(cluster, master, seconds=5)
    assert address.holder is None


def test_master_outside_its_group_does_not_associate_the_address(
    cluster: SimulatedCluster, master: SimulatedNode, address: Address
) -> None:
    cluster.run([master], until=all_ready([master]))
    cluster.set_lifecycle_state(master.instance_id, "Standby")
    run_passes(cluster, master, seconds=30)
    cluster.clients.ec2.disassociate_address(PublicIp=address.ip)
    run_passes(cluster, master, seconds=METADATA_DELAY_S + 30)
    assert address.holder is None
    cluster.set_lifecycle_state(master.instance_id, "InService")
    run_passes(cluster, master, seconds=30)
    assert address.holder == master.instance_id


def test_refused_association_is_retried(
    cluster: SimulatedCluster, master: SimulatedNode, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise ClientError({"Error": {"Code": "RequestLimitExceeded", "Message": "slow down"}}, "AssociateAddress")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.clients.ec2, "associate_address", refuse)
        run_passes(cluster, master, seconds=3)
        assert cluster.signals == []
    run_passes(cluster, master, seconds=1)
    assert address.holder == master.instance_id
    assert master.agent.is_signal_settled


def test_master_keeps_the_address_while_groups_are_unavailable(
    cluster: SimulatedCluster, master: SimulatedNode, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    def throttled(**_: object) -> None:
        raise ClientError({"Error": {"Code": "Throttling", "Message": "Rate exceeded"}}, "DescribeAutoScalingGroups")

    cluster.run([master], until=all_ready([master]))
    cluster.clients.ec2.disassociate_address(PublicIp=address.ip)
    monkeypatch.setattr(cluster.clients.autoscaling, "describe_auto_scaling_groups", throttled)
    run_passes(cluster, master, seconds=METADATA_DELAY_S + 30)
    assert address.holder == master.instance_id


def test_cluster_without_an_address_associates_none(cluster: SimulatedCluster, calls: Counter[str]) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    master = cluster.boot_node("master")
    cluster.run([master], until=all_ready([master]))
    assert calls["AssociateAddress"] == 0
