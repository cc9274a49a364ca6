"""Check that nodes connect to no address outside ``egress``, in their own VPC either."""

from functools import partial

from local.faults.clients import client
from stacks.storage.shared_storage import NFS_PORT
from tests.e2e.private.existing_vpc import (
    NAME,
    OTHER_BLOCK,
    ExistingVpc,
    PrivateCluster,
    existing_file_system,
    nfs_with,
    other_subnet,
)
from tests.waiting import wait_until


def check_egress(cluster: PrivateCluster, vpc: ExistingVpc, *, address_within: str) -> None:
    """Connect from a worker to a file system that is in ``egress``, and to another that is not."""
    assert _connects(cluster, address_within)
    ec2, (_, worker, *_) = client("ec2"), cluster.instances
    [group] = [each["GroupId"] for each in worker["SecurityGroups"]]
    with other_subnet(vpc) as subnet, existing_file_system(vpc, name="of-others", subnet=subnet) as other:
        connects = partial(_connects, cluster, other["IpAddress"])
        assert not connects()
        # Nothing but the missing rule prevents it.
        ec2.authorize_security_group_egress(GroupId=group, IpPermissions=nfs_with(OTHER_BLOCK))
        wait_until(connects, "a connection to the other file system", timeout_s=60)
        ec2.revoke_security_group_egress(GroupId=group, IpPermissions=nfs_with(OTHER_BLOCK))
        wait_until(lambda: not connects(), "no connection without the rule", timeout_s=60)


def _connects(cluster: PrivateCluster, address: str) -> bool:
    probe = f"timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/{NFS_PORT}' 2>&1 && echo connected || true"
    return cluster.user.ssh(f"{NAME}-worker2", probe).strip() == "connected"
