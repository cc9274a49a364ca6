"""``dlcluster policy``: print the IAM policy that the cluster's users need."""

import json

from cli.aws.clients import create_clients
from cli.cluster_context import resolve_cluster
from cli.command import cluster_command
from cli.errors import NoClusterError
from cli.shared_options import Selection
from cli.ssh.user_policy import AwsScope, user_policy


@cluster_command("policy", examples=("dlcluster policy > user-policy.json",))
def command(selection: Selection) -> int:
    """Print the IAM policy that the cluster's users need, as JSON.

    It allows finding the nodes, logging in and running jobs; on a private cluster, sessions with its nodes only. A user
    with no other permissions must name the cluster: dlcluster --cluster NAME.
    """
    clients = create_clients(selection.region)
    try:
        cluster = resolve_cluster(selection, clients)
    except NoClusterError as error:
        if selection.cluster is not None:
            raise
        raise NoClusterError(f"{error}; the policy names the table that a deploy creates") from error
    _, partition, _, _, account, _ = clients.sts.get_caller_identity()["Arn"].split(":", 5)
    scope = AwsScope(partition=partition, region=clients.region, account=account)
    print(json.dumps(user_policy(cluster, scope), indent=2))
    return 0
