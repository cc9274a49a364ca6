"""Name the keys and buckets of the user that the product's stack uses."""

from collections.abc import Callable

from tests.local.control_plane.harness import REGION
from tests.security.cluster import ACCOUNT, RoleCluster

TOOLKIT_BUCKET = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
SECRET_KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0123abcd"
"""A user's own key, with which the secrets are encrypted."""
DATA_KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/89abcdef"
"""A user's own key, with which the buckets of data are encrypted."""
DATA, RESULTS = "team-data", "team-results"
"""Buckets of the user, of which nodes reach the part below a prefix; they write only into the second."""
KMS_KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/12345678-1234-1234-1234-123456789012"
"""A user's own key, with which the cluster encrypts what it stores."""
Deploy = Callable[..., RoleCluster]
