"""Read secrets from SSM parameters and Secrets Manager with the ``aws`` command line and this node's role.

Each value arrives through a pipe: it is on no command line, and only the runner and its ranks keep it.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from bootstrap.contract import PYTORCH_PYTHON, SECRETS_PATTERN
from launcher.errors import LaunchError
from launcher.hosts.node_config import node_region

TIMEOUT_S = 60.0
ERROR = re.compile(r"\((\w+)\) when calling the \w+ operation[^:]*:\s*(.*)", re.DOTALL)
"""Error of a service, as the ``aws`` command line prints it."""
ABSENT = frozenset({"ParameterNotFound", "ResourceNotFoundException"})
DENIED = frozenset({"AccessDeniedException", "AccessDenied"})
OTHER_IDENTITIES = (
    *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AWS_SECURITY_TOKEN", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"),
)
"""Variables that would give the command line an identity other than the node's role."""
NO_FILES = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
"""Variables that hide the user's files, which may set another identity or enable a history of all answers."""

RETRIES = {"AWS_RETRY_MODE": "standard", "AWS_MAX_ATTEMPTS": "10"}
"""Variables for more than the default three tries: Parameter Store allows an account 40 calls a second, and nodes of
other jobs may ask at the same time (those of one job take turns: launcher.job.checks).
"""


def read_secrets(references: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> dict[str, str]:
    """Return each variable's value. LaunchError names the secret that cannot be read, and why."""
    until = time.monotonic() + timeout_s
    queries: dict[str, _Query] = {}
    try:
        for reference in references.values():
            if reference not in queries:
                queries[reference] = _Query(reference)
        values = {reference: query.value(until=until) for reference, query in queries.items()}
    finally:
        for query in queries.values():
            query.end()
    return {name: values[reference] for name, reference in references.items()}


class _Query:
    """One call in its own process; a call takes a second, so all calls run in parallel."""

    def __init__(self, reference: str) -> None:
        self._reference = reference
        try:
            self._aws = subprocess.Popen(
                [*_command(reference), "--output", "json", *_region(reference)],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except FileNotFoundError as error:
            raise LaunchError("aws: command not found, which nodes need to read secrets") from error

    def value(self, *, until: float) -> str:
        """Wait for the value; LaunchError if there is none."""
        try:
            stdout, stderr = self._aws.communicate(timeout=max(1.0, until - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise LaunchError(f"{self._reference}: no answer in time (no route to AWS, or no endpoint)") from error
        if self._aws.returncode:
            raise LaunchError(f"{self._reference}: {_reason(self._reference, stderr.decode(errors='replace'))}")
        value = json.loads(stdout)
        if not isinstance(value, str) or "\0" in value:
            raise LaunchError(f"{self._reference}: must be text without NUL characters, as variables are")
        return value

    def end(self) -> None:
        """End the process if it still runs."""
        if self._aws.poll() is None:
            self._aws.kill()
            self._aws.communicate()


def _command(reference: str) -> list[str]:
    match = re.fullmatch(SECRETS_PATTERN, reference, re.ASCII)
    if match is None:
        raise ValueError(f"not a secret reference: {reference!r}")
    if parameter := match["parameter"]:
        return ["aws", "ssm", "get-parameter", f"--name={parameter}", "--with-decryption", "--query", "Parameter.Value"]
    return ["aws", "secretsmanager", "get-secret-value", f"--secret-id={match['secret']}", "--query", "SecretString"]


def _region(reference: str) -> list[str]:
    """Return the option for the region of an ARN, else of this node; empty on other machines."""
    match = re.fullmatch(SECRETS_PATTERN, reference, re.ASCII)
    if match is not None and match["region"]:
        return ["--region", match["region"]]
    region = node_region()
    return ["--region", region] if region is not None else []


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in OTHER_IDENTITIES}
    # Images with PyTorch have the aws command line there, and some have it nowhere else.
    path = f"{os.environ.get('PATH', os.defpath)}:{Path(PYTORCH_PYTHON).parent}"
    return {**kept, **NO_FILES, **RETRIES, "PATH": path}


def _reason(reference: str, stderr: str) -> str:
    """Explain an error in one line, with advice."""
    match = ERROR.search(stderr)
    if match is None:
        lines = stderr.strip().splitlines()
        return lines[-1] if lines else "aws ended without a value or a reason"
    code, message = match[1], " ".join(match[2].split())
    if code in ABSENT:
        return "is not there"
    if code not in DENIED:
        return f"{code}: {message}"
    if re.search(r"perform: kms:|Access to KMS|ciphertext", message):
        return "this node may not use its key: name the key's ARN in secret_keys of cdk.json, then cdk deploy"
    if "explicit deny" in message:
        return f"a policy denies it to this node: {message}"
    # For a missing secret, Secrets Manager's error gives the name from the request, not an ARN.
    if re.search(r"on resource: (?!arn:)", message):
        return "does not exist under this name; list the secrets with: aws secretsmanager list-secrets"
    return f"this node may not read it: add {reference} to secrets in cdk.json, then cdk deploy"
