"""What dlcluster raises; main() alone catches it."""


class ClusterError(Exception):
    """The cluster, AWS or the connection is not as needed."""

    exit_code = 1
    fix = ""
    """What to do, where one thing helps whatever was asked."""


class CredentialsError(ClusterError):
    """AWS does not know the caller, or no longer."""

    fix = "aws configure, aws sso login, or set AWS_PROFILE"


class NoAnswerError(ClusterError):
    """AWS itself said nothing: the network, or something in AWS's place."""

    fix = "check the region, the network, the proxy (HTTPS_PROXY) and AWS_ENDPOINT_URL"


class UsageError(ClusterError):
    """The command line, or what it leaves to the environment, is wrong."""

    exit_code = 2
