"""Define every name that two parts of the product share. It imports no other module, so any package may import it.

Do not change the host names, the workers file, ``EFS_MOUNT`` or the ``DEEPLEARNING_WORKER*`` variables: scripts for
deeplearning-cfn use them.
"""

from typing import Final, Literal

VERSION: Final = "0.1.0"
"""The version in pyproject.toml."""
NodeType = Literal["master", "worker"]
MASTER: Final = "master"
WORKER: Final = "worker"
NODE_TYPES: Final[tuple[NodeType, ...]] = (MASTER, WORKER)
MAX_WORKERS: Final = 500
"""Largest number of workers, set by the table's read rate (docs/healing.md); readers reject a larger membership."""

# ---- files and directories on a node ----
PRODUCT_DIR: Final = "/opt/deeplearning"
"""Directory of the product's files that users may read."""
RELEASES_DIR: Final = f"{PRODUCT_DIR}/releases"
"""Parent of the releases, each named by its bundle's hash."""
CURRENT_RELEASE_LINK: Final = f"{PRODUCT_DIR}/current"
"""Symbolic link to the current release, with bootstrap/, launcher/, trainer/ and vendor/."""
TRAINER_LINK: Final = f"{PRODUCT_DIR}/trainer"
"""Symbolic link to the bundled trainer: ``launch python /opt/deeplearning/trainer ...``."""
WORKERS_FILE: Final = f"{PRODUCT_DIR}/workers"
"""Host names of the nodes on which jobs run, one per line in index order; owned by the default user."""
NODE_CONFIG_FILE: Final = "/etc/deeplearning/node.json"
"""Configuration of the node: bootstrap.config.NodeConfig as JSON, written by the user data."""
NODE_STATE_FILE: Final = "/run/deeplearning/node.json"
"""State of the node as the agent last wrote it: {"instance_id", "node_index", "generation", "desired_nodes",
"members"}. A member has "node_index", "instance_id", "address", "node_type", "host_key", "ssh_key", "draining" and, if
known, "mount", "setup" and "release". World-readable, written by root after all other files."""
ARRIVING_NODES_FILE: Final = "/run/deeplearning/arriving-nodes"
"""File on the master: number of launched instances that have not joined yet."""
PAUSE_NOTICES_FILE: Final = "/run/deeplearning/pause-notices.json"
"""The agent's last announcement of each kind of pause: {KIND: {"sentence", "is_coming"}}. World-readable."""
HOSTS_FILE: Final = "/etc/hosts"
ENVIRONMENT_SCRIPT: Final = "/etc/profile.d/deeplearning.sh"
"""Variables for login shells."""
ENVIRONMENT_FILE: Final = "/etc/environment"
"""Variables for every PAM session, so that ``ssh host command`` has them."""
SYSTEMD_ENVIRONMENT_FILE: Final = "/etc/systemd/system.conf.d/60-deeplearning.conf"
"""Variables for systemd units."""
KNOWN_HOSTS_FILE: Final = "/etc/ssh/ssh_known_hosts"
SSH_CLIENT_CONFIG_FILE: Final = "/etc/ssh/ssh_config.d/60-deeplearning.conf"
SSHD_CONFIG_FILE: Final = "/etc/ssh/sshd_config.d/60-deeplearning.conf"
HOST_KEY_FILE: Final = "/etc/ssh/ssh_host_ed25519_key.pub"
LOG_FILE: Final = "/var/log/deeplearning/agent.log"
CLUSTER_KEY_DIR: Final = "/etc/deeplearning/cluster-key"
CLUSTER_KEY_FILE: Final = f"{CLUSTER_KEY_DIR}/id_ed25519"
"""The cluster's private key, on the master only; jobs that run without a user log in to the nodes with it."""
AUTHORIZED_KEYS_DIR: Final = "/etc/deeplearning/authorized_keys"
"""Directory with one file per login user, containing the cluster's public key; sshd reads it besides the user's own."""
TEAM_KEYS_DIR: Final = "/etc/deeplearning/team_keys"
"""Directory with one file per login user: the keys of the setting ``ssh_keys``. A line's third word names its key."""
SCRATCH_DIRS: Final = ("/var/tmp", "/opt/dlami/nvme")  # noqa: S108  (the node's check writes a nameless file)
"""Directories for jobs' scratch data: on the root volume, and on the instance storage of the Deep Learning AMIs."""
MXNET_ENVIRONMENTS_DIR: Final = f"{PRODUCT_DIR}/mxnet"
"""Parent of the MXNet environments, each named by its recipe's key."""
MXNET_ENVIRONMENT_LINK: Final = f"{MXNET_ENVIRONMENTS_DIR}/current"
"""Symbolic link to the complete environment in use; its ``bin`` has python, mpirun and horovodrun."""
MXNET_FRAMEWORKS_FILE: Final = f"{MXNET_ENVIRONMENT_LINK}/frameworks"
"""List of the frameworks in it, one per line."""
MXNET_ARCHIVES_PREFIX: Final = "mxnet/"
"""Prefix of the environments in a bucket: mxnet/CLUSTER/KEY.tar.gz, because clusters may share a bucket."""
JOBS_PREFIX: Final = "jobs/"
"""Prefix of the jobs' records in a bucket, per cluster jobs/CLUSTER/; the workers' role has no access to it."""
MXNET_ENVIRONMENT_STATE_FILE: Final = "/run/deeplearning/mxnet.json"
"""Progress of the MXNet environment: {"state", "why", "failure", "detail"}. "why" names the failure that caused this
try; "failure" and "detail" are null until the last try has failed."""
SHARED_DIR: Final = "/shared"
"""Directory that all nodes share (setting ``shared_storage``); it refuses writes until the file system is mounted."""
SHARED_TARGET_FILE: Final = "/run/deeplearning/shared-target"
"""File system to mount there: SHARED_STORAGE_FIELD's value. The agent writes it, the service reads it."""
SHARED_STATE_FILE: Final = "/run/deeplearning/shared-state"
"""Progress of the mount, one of MOUNT_STATES. The service writes it, the agent reads it."""
SHARED_STORAGE_SERVICE: Final = "deeplearning-shared-storage.service"
SETUP_SCRIPT: Final = "setup.sh"
SETUP_REQUIREMENTS: Final = "requirements.txt"
"""Names in the archive of the settings ``setup`` and ``requirements``."""
SETUP_MARKER_FILE: Final = "/var/lib/deeplearning/setup-done"
"""Hash of the archive whose setup has succeeded on this disk, and the node's type; an image includes it."""
SETUP_STATE_FILE: Final = "/run/deeplearning/setup.json"
"""Progress of the setup: {"state", "sha256", "failure"}; "failure" is null unless it has failed."""
SETUP_LOG_FILE: Final = "/var/log/deeplearning/setup.log"
SETUP_SERVICE: Final = "deeplearning-setup.service"
HOROVOD_REQUIREMENTS_FILE: Final = "/etc/deeplearning-horovod.txt"
"""Requirements file with hashes that the image's owner provides: the Horovod wheel to install instead of compiling."""
MXNET_ENVIRONMENT_SERVICE: Final = "deeplearning-mxnet-environment.service"
DURABLE_SERVICE: Final = "deeplearning-durable.service"
"""Service on the master that resumes durable jobs."""
READ_AHEAD_SERVICE: Final = "deeplearning-read-ahead.service"
"""Service that reads PyTorch's libraries once after a boot."""
AGENT_SERVICE: Final = "deeplearning-agent.service"
LAUNCH_COMMAND: Final = "/usr/local/bin/launch"
PYTORCH_PYTHON: Final = "/opt/pytorch/bin/python"
"""Python of the PyTorch Deep Learning AMIs (AWS Deep Learning AMIs release notes)."""

MARKER_BEGIN: Final = "# BEGIN deeplearning-cdk"
MARKER_END: Final = "# END deeplearning-cdk"
"""Markers around our lines in a shared file; we change no line outside them."""

# ---- host names ----
MASTER_HOST: Final = "deeplearning-master"
NODE_HOST_PREFIX: Final = "deeplearning-worker"
MASTER_INDEX: Final = 1
FIRST_WORKER_INDEX: Final = 2


def worker_host(node_index: int) -> str:
    """Return the host name of a node with an index, `MASTER_INDEX` for the master."""
    return f"{NODE_HOST_PREFIX}{node_index}"


# ---- variables that other packages read; bootstrap/files/environment.py defines all of them ----
WORKERS_PATH_VARIABLE: Final = "DEEPLEARNING_WORKERS_PATH"
WORKERS_COUNT_VARIABLE: Final = "DEEPLEARNING_WORKERS_COUNT"
GPU_COUNT_VARIABLE: Final = "DEEPLEARNING_WORKER_GPU_COUNT"
BUCKET_VARIABLE: Final = "DEEPLEARNING_BUCKET"
"""Name of the cluster's bucket, for data that must outlive the nodes and the cluster."""
SHARED_VARIABLE: Final = "DEEPLEARNING_SHARED"
EFS_MOUNT_VARIABLE: Final = "EFS_MOUNT"  # deeplearning-cfn's name for the same directory
CONNECTION_IDLE_VARIABLE: Final = "DEEPLEARNING_CONNECTION_IDLE_S"
"""Seconds for which ``launch`` keeps idle connections; 0 disables this."""

# ---- options and messages of ``launch`` that dlcluster knows ----
SECRETS_PATTERN: Final = (
    r"ssm:(?!/?(?:[aA][wW][sS]|[sS][sS][mM]))(?P<parameter>[A-Za-z0-9_.-]{1,900}|(?:/[A-Za-z0-9_.-]+){1,15})"
    r"|secretsmanager:(?P<secret>[A-Za-z0-9/_+=.@-]{1,512}"
    r"|arn:aws[a-z-]*:secretsmanager:(?P<region>[a-z0-9-]+):[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]{1,512}-[A-Za-z0-9]{6})"
)
"""Pattern of a secret's location, in the setting ``secrets`` and after ``launch --secret KEY=``. No parameter's name
begins with aws or ssm (PutParameter); a secret's ARN ends with six random characters (CreateSecret)."""
SECRETS_FORMS: Final = "ssm:PARAMETER, secretsmanager:NAME or secretsmanager:ARN"
JOB_NAME_PATTERN: Final = "[A-Za-z][A-Za-z0-9_.-]{0,39}"
JOB_NAME_FORM: Final = "a letter, then at most 39 letters, digits, dots, hyphens and underscores"
FOLLOW_HINT: Final = "launch: follow it with:"
WAITING_HINT: Final = "launch: waiting,"
"""Beginnings of the lines that ``launch --detach`` adds to the job's id for a user on the master."""

# ---- tags, on the Auto Scaling groups and their instances ----
CLUSTER_TAG: Final = "deeplearning:cluster"
NODE_TYPE_TAG: Final = "deeplearning:node-type"
SETUP_TAG: Final = "deeplearning:setup"
"""Tag of an image and its snapshots, and of the worker that it is made of: hash of the setup's archive."""


def group_name(cluster_name: str, node_type: NodeType) -> str:
    """Return the name of an Auto Scaling group. Nodes and roles name the group before it exists."""
    return f"{cluster_name}-{node_type}"


EXPIRES_TAG: Final = "deeplearning:expires"
"""Tag of the master's group: time from which AWS pauses the cluster, ISO 8601 in UTC; absent if it never does."""
CAPACITY_BLOCK_PAUSES_TAG: Final = "deeplearning:block-pauses"
"""Tag of the master's group: time at which AWS pauses the cluster before the end of its Capacity Block, if any."""
IDLE_STOP_TAG: Final = "deeplearning:idle-stop"
"""Tag of the master's group: seconds of idleness after which the master pauses the cluster; absent if it never does."""
GROUP_TAG: Final = "aws:autoscaling:groupName"
"""Auto Scaling's tag on the instances of a group; detaching an instance removes it."""
DRAIN_HOOK: Final = "drain"
"""Lifecycle hook of both groups: AWS waits for a node to drain before it terminates the instance."""
DRAIN_HOOK_HEARTBEAT_TIMEOUT_S: Final = 30
"""HeartbeatTimeout of the hook in seconds, AWS's minimum. A rollback waits that long for an unresponsive node."""

ALLOW_LIST_SIZE: Final = 20
"""Maximum number of addresses that may log in. AWS counts each as a rule of the security group."""
STACK_DESCRIPTION: Final = "A training cluster of deeplearning-cdk"
"""Description of the template, by which dlcluster recognizes a stack without outputs."""

# ---- stack parameters ----
IMMUTABLE_ZONE: Final = "AvailabilityZone"
"""ID of the construct whose parameter ``CreatedWith`` keeps the zone immutable (stacks/immutable_settings.py)."""
NO_ZONE: Final = "not chosen"
"""Value of that parameter until the zone has been chosen among the candidates."""

# ---- stack outputs; the first three keep deeplearning-cfn's names ----
MASTER_GROUP_OUTPUT: Final = "MasterAutoScalingGroup"
WORKER_GROUP_OUTPUT: Final = "WorkerAutoScalingGroup"
ADMIN_SECURITY_GROUP_OUTPUT: Final = "AdminSSHSecurityGroup"
CLUSTER_NAME_OUTPUT: Final = "ClusterName"
TABLE_OUTPUT: Final = "ClusterTable"
LOG_GROUP_OUTPUT: Final = "ClusterLogGroup"
BUCKET_OUTPUT: Final = "ClusterBucket"
SHARED_STORAGE_OUTPUT: Final = "SharedStorage"
"""ID of the file system that the nodes share; absent without one."""
LOGIN_USER_OUTPUT: Final = "LoginUser"
NETWORKS_OUTPUT: Final = "ClusterNetworks"
"""CIDR blocks, separated by commas; readers reject node addresses outside of them."""
PRIVATE_OUTPUT: Final = "ClusterPrivate"
"""``true`` if logins use Session Manager; a cluster with an open SSH port lacks this output."""
ALLOW_LIST_OUTPUT: Final = "ClusterAllowList"
"""ID of the prefix list from which SSH to the master is allowed; absent from a private cluster."""
EXPIRES_OUTPUT: Final = "ClusterExpires"
"""Time at which the cluster is paused, ISO 8601 in UTC; absent from a cluster that never is."""
EXPIRY_ACTION_OUTPUT: Final = "ClusterExpiryAction"
"""``delete`` if the stack is deleted after the pause; absent otherwise."""
CAPACITY_BLOCK_OUTPUT: Final = "CapacityBlock"
"""ID of the Capacity Block, its start, its nodes' termination time, and its end, separated by spaces; or absent."""
PRICE_OUTPUT: Final = "PricePerHour"
"""Price per hour of all deployed nodes and their network, as a sentence."""
RELEASE_OUTPUT: Final = "ClusterRelease"
"""Release that new nodes run, in the form of RELEASE_FIELD; absent from the stacks of earlier releases."""
KMS_KEY_OUTPUT: Final = "ClusterKey"
"""ARN of the user's KMS key; absent without one."""
ROLE_PREFIX_OUTPUT: Final = "ClusterRolePrefix"
"""Start of the names of the roles; absent without the setting."""
SETUP_OUTPUT: Final = "ClusterSetup"
"""URL, SHA-256 and timeout in seconds of the user's setup, separated by spaces; absent without one."""

# ---- the cluster's table (DynamoDB): one item per record, partition key TABLE_KEY ----
TABLE_KEY: Final = "id"
MEMBERSHIP_ID: Final = "membership"
"""Record of all members and their indexes. Only the master's role may write it."""
GENERATION_ID: Final = "generation"
"""Small record with the membership's generation, which every node polls."""
MXNET_ENVIRONMENT_RECORD_ID: Final = "mxnet"
"""Record of the MXNet environment in the bucket and its archive's hash. Only the master's role may write it."""
PAUSE_ID: Final = "pause"
"""Record of the pauses to come: bootstrap.idle.pause_record. Only the master's role may write it."""
RECORD_VERSION: Final = 2
"""Version of the records, in the field ``version``. It may gain keys: readers ignore keys that they do not know."""


def node_record_id(role_id: str, instance_id: str) -> str:
    """Return the key of a node's own record: the node's ``aws:userid``, so that IAM can compare the two.

    See "IAM JSON policy elements: Variables and tags" and "Using IAM policy conditions for
    fine-grained access control" (dynamodb:LeadingKeys) in the AWS documentation.
    """
    return f"{role_id}:{instance_id}"


def release_name(bundle_hash: str) -> str:
    """Return a release's name, by which the user's machine, the stack and the nodes compare their releases."""
    return f"{VERSION}:{bundle_hash[:RELEASE_HASH_LENGTH]}"


VERSION_FIELD: Final = "version"
GENERATION_FIELD: Final = "generation"
DESIRED_NODES_FIELD: Final = "desired_nodes"
MEMBERS_FIELD: Final = "members"
"""Fields of the membership record. ``members`` is a JSON list, ``desired_nodes`` the groups' total DesiredCapacity."""
SHARED_STORAGE_FIELD: Final = "shared_storage"
"""Field of the membership record: ``efs:ID`` or ``lustre:ID:MOUNT_NAME``; absent while unknown."""
MASTER_TRAINS_FIELD: Final = "master_trains"
"""Field of the membership record: false if no job runs on the master, otherwise absent."""
TEAM_KEYS_FIELD: Final = "team_keys"
"""Field of the membership record: the team's SSH keys in the form of bootstrap.team_keys.keys; absent if none."""
# Fields of a member follow. A node's own record has all except the index and the address.
NODE_INDEX_FIELD: Final = "node_index"
INSTANCE_ID_FIELD: Final = "instance_id"
ADDRESS_FIELD: Final = "address"  # private IPv4 address
NODE_TYPE_FIELD: Final = "node_type"
HOST_KEY_FIELD: Final = "host_key"  # public half of the node's SSH host key
SSH_KEY_FIELD: Final = "ssh_key"  # public half of the cluster's key; empty on a worker
DRAINING_FIELD: Final = "draining"  # true if no new job may use the node
MOUNT_FIELD: Final = "mount"
"""One of MOUNT_STATES; absent without shared storage."""
SETUP_FIELD: Final = "setup"
"""``done:`` or ``failed:`` and the first SETUP_HASH_LENGTH digits of the archive's hash; absent without a setup."""
RELEASE_FIELD: Final = "release"
"""``VERSION:HASH`` of its agent's release (`release_name`); absent from agents of earlier releases."""
RELEASE_HASH_LENGTH: Final = 12
SETUP_RUNNING: Final = "running"
SETUP_DONE: Final = "done"
SETUP_FAILED: Final = "failed"
SETUP_HASH_LENGTH: Final = 12
MOUNTED: Final = "mounted"  # and the file system answers
MOUNT_NOT_KNOWN: Final = "not-known"  # its ID is not known yet
MOUNT_NO_ADDRESS: Final = "no-address"  # its name has no address because there is no mount target
MOUNT_UNREACHABLE: Final = "unreachable"  # nothing answers there
MOUNT_REFUSED: Final = "refused"  # the file system refuses the mount
MOUNT_NO_CLIENT: Final = "no-client"  # the kernel lacks the client
MOUNT_OCCUPIED: Final = "occupied"  # something else is mounted on the directory
MOUNT_STOPPED: Final = "stopped"  # the mount service has ended and is restarting
MOUNT_STATES: Final = (
    *(MOUNTED, MOUNT_NOT_KNOWN, MOUNT_NO_ADDRESS, MOUNT_UNREACHABLE),
    *(MOUNT_REFUSED, MOUNT_NO_CLIENT, MOUNT_OCCUPIED, MOUNT_STOPPED),
)
"""States of a node's shared directory."""
IDLE_REPORT_FIELD: Final = "idle_report"
"""Field of a node's own record: how long the node has been idle; absent without the setting ``idle_stop``."""
MXNET_ENVIRONMENT_FIELD: Final = "environment"
SHA256_FIELD: Final = "sha256"
"""Fields of the record of the MXNet environment."""

# ---- ports and limits ----
SSH_PORT: Final = 22
MAX_GRACE_S: Final = 600
"""Longest time between SIGTERM and SIGKILL (``launch --grace``), for which a draining node waits for its ranks."""
SIGNAL_ID_LENGTH: Final = 64
"""Longest UniqueId that SignalResource takes (AWS CloudFormation API Reference)."""
SIGNAL_TOO_LATE: Final = "cannot be signaled"
"""CloudFormation's answer when it no longer waits for a signal; normal for a replacement."""
