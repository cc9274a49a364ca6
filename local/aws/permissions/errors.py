"""What cannot be judged."""


class PolicyError(Exception):
    """A policy that says something that is not understood here."""


class UnknownCallError(Exception):
    """A call whose resources nobody has described here yet."""
