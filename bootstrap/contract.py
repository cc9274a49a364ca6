"""Every name that two parts of the product must agree on, written once.

Scripts written for deeplearning-cfn rely on the host names, the workers file and the
``DEEPLEARNING_*`` variables; they must not change. Imports nothing: every room may import it.
"""

from typing import Final, Literal

NodeType = Literal["master", "worker"]
MASTER: Final = "master"
WORKER: Final = "worker"
NODE_TYPES: Final[tuple[NodeType, ...]] = (MASTER, WORKER)
MOST_WORKERS: Final = 500
"""Most workers of a cluster; every reader refuses a membership with more. The table's read rate sets it: see
docs/healing.md for the arithmetic, and bootstrap/cluster/poll_interval.py."""

# ---- files and directories on a node ----
ROOT: Final = "/opt/deeplearning"
"""Everything of ours that users may look at."""
RELEASES_DIR: Final = f"{ROOT}/releases"
"""One directory a bundle, named by the bundle's hash."""
CURRENT_RELEASE: Final = f"{ROOT}/current"
"""Symbolic link to the release in use; holds bootstrap/, launcher/, trainer/ and vendor/."""
TRAINER: Final = f"{ROOT}/trainer"
"""Symbolic link to the bundled trainer: ``launch python /opt/deeplearning/trainer ...``."""
WORKERS_FILE: Final = f"{ROOT}/workers"
"""One alias a line, in index order, owned by the default user."""
NODE_CONFIG: Final = "/etc/deeplearning/node.json"
"""Written by the user data, read by the agent; see bootstrap.config.NodeConfig."""
NODE_STATE: Final = "/run/deeplearning/node.json"
"""What the agent last made true: {"instance_id", "node_index", "generation", "members"}, with of each member
node index, instance id, address, node type and host key; written last, world-readable. Root alone writes it."""
HOSTS_FILE: Final = "/etc/hosts"
ENVIRONMENT_SCRIPT: Final = "/etc/profile.d/deeplearning.sh"
"""The variables for login shells."""
ENVIRONMENT_FILE: Final = "/etc/environment"
"""The variables for every PAM session, so that ``ssh host command`` sees them."""
SYSTEMD_ENVIRONMENT: Final = "/etc/systemd/system.conf.d/60-deeplearning.conf"
"""The variables for systemd units."""
KNOWN_HOSTS_FILE: Final = "/etc/ssh/ssh_known_hosts"
SSH_CLIENT_CONFIG: Final = "/etc/ssh/ssh_config.d/60-deeplearning.conf"
SSHD_CONFIG: Final = "/etc/ssh/sshd_config.d/60-deeplearning.conf"
HOST_KEY_FILE: Final = "/etc/ssh/ssh_host_ed25519_key.pub"
LOG_FILE: Final = "/var/log/deeplearning/agent.log"
CLUSTER_KEY_DIR: Final = "/etc/deeplearning/cluster-key"
CLUSTER_KEY_FILE: Final = f"{CLUSTER_KEY_DIR}/id_ed25519"
"""Private key of the cluster, on the master alone: jobs that run without a person reach the nodes with it."""
AUTHORIZED_KEYS_DIR: Final = "/etc/deeplearning/authorized_keys"
"""One file a login user, beside the user's own: the cluster's public key."""
SCRATCH_DIRS: Final = ("/var/tmp", "/opt/dlami/nvme")  # noqa: S108  (only files without a name)
"""Where jobs write what may be lost: the root volume, and where the Deep Learning AMIs mount instance storage."""
ENGINES_DIR: Final = f"{ROOT}/engines"
"""Environments of the ``engines`` setting, one directory a recipe, named by its key."""
ENGINES: Final = f"{ENGINES_DIR}/current"
"""Symbolic link to the one in use, once it is complete; its ``bin`` has python, mpirun and horovodrun."""
ENGINES_LIST: Final = f"{ENGINES}/engines"
"""The engines in it, one a line."""
ENGINES_PREFIX: Final = "engines/"
"""Where the cluster's bucket keeps environments, as KEY.tar.gz."""
ENGINES_STATE: Final = "/run/deeplearning/engines.json"
"""How far the environment is: {"doing", "why", "failure", "detail"}; "why" says what a further try follows, the last
two are null until nothing more is tried."""
HOROVOD_WHEEL: Final = "/etc/deeplearning-horovod.txt"
"""A list of the image's, as for ``pip --require-hashes``: the wheel of Horovod that its owner vouches for."""
ENGINES_SERVICE: Final = "deeplearning-engines.service"
MPIRUN_COMMAND: Final = "/usr/local/bin/mpirun"
"""Symbolic link to the environment's, which has Horovod: people start jobs with it from a login shell."""
AGENT_SERVICE: Final = "deeplearning-agent.service"
LAUNCH_COMMAND: Final = "/usr/local/bin/launch"
PYTORCH_PYTHON: Final = "/opt/pytorch/bin/python"
"""The Python of the PyTorch Deep Learning AMIs (AWS Deep Learning AMIs release notes)."""

BLOCK_BEGIN: Final = "# BEGIN deeplearning-cdk"
BLOCK_END: Final = "# END deeplearning-cdk"
"""Our lines in a shared file stand between these two; the rest of the file is not ours."""

# ---- host names ----
MASTER_HOST: Final = "deeplearning-master"
WORKER_HOST_PREFIX: Final = "deeplearning-worker"


def worker_host(node_index: int) -> str:
    """Host name of an index; node indexes count from 1 and node index 1 is the master."""
    return f"{WORKER_HOST_PREFIX}{node_index}"


# ---- variables ----
WORKERS_PATH_VARIABLE: Final = "DEEPLEARNING_WORKERS_PATH"
WORKERS_COUNT_VARIABLE: Final = "DEEPLEARNING_WORKERS_COUNT"
GPU_COUNT_VARIABLE: Final = "DEEPLEARNING_WORKER_GPU_COUNT"
BUCKET_VARIABLE: Final = "DEEPLEARNING_BUCKET"
"""Name of the cluster's bucket, for what must outlive nodes and the cluster."""
KEEP_VARIABLE: Final = "DEEPLEARNING_KEEP_S"
"""For how many seconds ``launch`` keeps its idle connections; 0 for administrators who want none kept."""
INSTANCE_ID_VARIABLE: Final = "DEEPLEARNING_INSTANCE_ID"
"""Which machine a process runs on: jobs put it in their logs and reports."""

# ---- tags, on the Auto Scaling groups and their instances ----
CLUSTER_TAG: Final = "deeplearning:cluster"
NODE_TYPE_TAG: Final = "deeplearning:node-type"


def group_name(cluster_name: str, node_type: NodeType) -> str:
    """Name of an Auto Scaling group: nodes must know it before it exists, and their roles name no other."""
    return f"{cluster_name}-{node_type}"


GROUP_TAG: Final = "aws:autoscaling:groupName"
"""Auto Scaling's own tag on the instances of a group; it goes when an instance is detached."""
DRAIN_HOOK: Final = "drain"
"""Lifecycle hook of both groups: a node that is to end tells the others first."""
DRAIN_TIMEOUT_S: Final = 30
"""How long the hook waits for a sign of life, AWS's least: a rollback waits that long for a node that cannot speak."""

# ---- stack outputs; the first three keep deeplearning-cfn's names ----
MASTER_GROUP_OUTPUT: Final = "MasterAutoScalingGroup"
WORKER_GROUP_OUTPUT: Final = "WorkerAutoScalingGroup"
ADMIN_SECURITY_GROUP_OUTPUT: Final = "AdminSSHSecurityGroup"
CLUSTER_NAME_OUTPUT: Final = "ClusterName"
TABLE_OUTPUT: Final = "ClusterTable"
LOG_GROUP_OUTPUT: Final = "ClusterLogGroup"
BUCKET_OUTPUT: Final = "ClusterBucket"
LOGIN_USER_OUTPUT: Final = "LoginUser"
NETWORKS_OUTPUT: Final = "ClusterNetworks"
"""CIDR blocks with commas between them: no address elsewhere is a node's, whatever the table says."""

# ---- the cluster's table (DynamoDB): one item a record, partition key TABLE_KEY ----
TABLE_KEY: Final = "id"
MEMBERSHIP_ID: Final = "membership"
"""The one record that says who is in which index. Only the master's role may write it."""
GENERATION_ID: Final = "generation"
"""A small record that changes with the membership's: what every node asks for again and again."""
ENGINES_RECORD_ID: Final = "engines"
"""Which environment the bucket has, and its archive's hash. Only the master's role may write it."""
RECORD_VERSION: Final = 2
"""Carried by each record as ``version``: agents of two deploys must understand each other. Keys may be
added under the same version; readers pass over what they do not know."""


def node_record_id(role_id: str, instance_id: str) -> str:
    """Key of a node's own record: the node's ``aws:userid``, which IAM can compare with.

    See "IAM JSON policy elements: Variables and tags" and "Using IAM policy conditions for
    fine-grained access control" (dynamodb:LeadingKeys) in the AWS documentation.
    """
    return f"{role_id}:{instance_id}"


VERSION_FIELD: Final = "version"
GENERATION_FIELD: Final = "generation"
DESIRED_NODES_FIELD: Final = "desired_nodes"
MEMBERS_FIELD: Final = "members"
"""Fields of the membership record; the last is a JSON list of the members."""
NODE_INDEX_FIELD: Final = "node_index"
INSTANCE_ID_FIELD: Final = "instance_id"
ADDRESS_FIELD: Final = "address"
NODE_TYPE_FIELD: Final = "node_type"
HOST_KEY_FIELD: Final = "host_key"
SSH_KEY_FIELD: Final = "ssh_key"
DRAINING_FIELD: Final = "draining"
"""Fields of a member. A node's own record has them too, but for the node index and the address."""
ENVIRONMENT_FIELD: Final = "environment"
SHA256_FIELD: Final = "sha256"
"""Fields of the engines' record."""


# ---- ports ----
SSH_PORT: Final = 22

# ---- limits ----
SIGNAL_ID_LENGTH: Final = 64
"""Longest UniqueId that SignalResource takes (AWS CloudFormation API Reference)."""
SIGNAL_TOO_LATE: Final = "cannot be signaled"
"""CloudFormation's words when nobody waits (any more): a replacement's normal case."""
