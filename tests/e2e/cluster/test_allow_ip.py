"""Test that ``dlcluster allow-ip`` lets an address reach the SSH port of a running cluster, and revokes that."""

from local.network.addresses import USER_ADDRESS
from tests.e2e.support.deployed_cluster import DeployedCluster
from tests.e2e.support.port_scan import SSH, open_ports, wait_for_ports


def test_address_gets_in_while_it_is_on_the_list(listening_cluster: DeployedCluster, outside_address: str) -> None:
    user, public = listening_cluster.user, listening_cluster.public_address
    assert open_ports(outside_address, public) == set()
    user.run("dlcluster", "allow-ip", f"{outside_address}/32", "--for", "8h")
    wait_for_ports(lambda: open_ports(outside_address, public), {SSH})
    user.run("dlcluster", "allow-ip", f"{outside_address}/32", "--remove")
    wait_for_ports(lambda: open_ports(outside_address, public), set())
    # The machine's own address on the internet, which ssh_location also admits.
    message = user.output("dlcluster", "allow-ip", "--me")
    assert message.splitlines()[1].split() == [f"{USER_ADDRESS}/32", "-"]
    user.run("dlcluster", "allow-ip", "--remove", "--me")
    assert open_ports(USER_ADDRESS, public) == {SSH}
