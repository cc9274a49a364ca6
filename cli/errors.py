"""What dlcluster raises; main() alone catches it."""


class ClusterError(Exception):
    """The cluster, AWS or the connection is not as needed."""

    exit_code = 1


class NoAnswerError(ClusterError):
    """AWS itself said nothing: the network, or something in AWS's place."""


class UsageError(ClusterError):
    """The command line, or what it leaves to the environment, is wrong."""

    exit_code = 2
