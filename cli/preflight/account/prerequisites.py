"""Check the caller, the key pair, and whether the CDK can work in the account."""

import difflib
from collections.abc import Iterator
from typing import Final

from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import PreflightTarget

MIN_BOOTSTRAP_VERSION: Final = 6
"""Lowest version that the CDK's default synthesizer accepts (rule CheckBootstrapVersion in every template)."""


def check_credentials(target: PreflightTarget) -> Iterator[Finding]:
    """Report which account and region the deploy would use."""
    yield ok("credentials", f"{target.caller} in {target.region}")


def check_settings(target: PreflightTarget) -> Iterator[Finding]:
    """Report the settings' own warnings."""
    for sentence in target.props.warnings().values():
        yield warning("settings", sentence)
    props = target.props
    if (props.setup or props.requirements) and props.worker_count and props.min_workers is None:
        sentence = "setup without min_workers: the deploy fails, and ends all nodes, if it fails on one worker"
        yield warning("settings", sentence, "set min_workers, such as 0")


def check_key_pair(target: PreflightTarget) -> Iterator[Finding]:
    """Find the EC2 key pair; without it, every node's launch fails."""
    name = target.props.key_name
    if name is None:
        return
    names = [pair.get("KeyName", "") for pair in target.clients.ec2.describe_key_pairs()["KeyPairs"]]
    if name in names:
        yield ok("key pair", f"{name} exists in {target.region}")
        return
    near = difflib.get_close_matches(name, names, n=1)
    fix = (
        f"did you mean {near[0]}?"
        if near
        else f"aws ec2 import-key-pair --region {target.region} --key-name '{name}' "
        "--public-key-material fileb://~/.ssh/id_ed25519.pub"
    )
    yield problem("key pair", f"there is no key pair {name!r} in {target.region}", fix)


def check_cdk_bootstrap(target: PreflightTarget) -> Iterator[Finding]:
    """Check that ``cdk bootstrap`` was run, with a recent enough version."""
    version, fix = bootstrap_version(target), f"cdk bootstrap aws://{target.account}/{target.region}"
    if version is None:
        yield problem("cdk bootstrap", f"not done in {target.region}, so its roles are not checked", fix)
    elif version < MIN_BOOTSTRAP_VERSION:
        yield problem("cdk bootstrap", f"version {version} is older than {MIN_BOOTSTRAP_VERSION}", fix)
    else:
        yield ok("cdk bootstrap", f"version {version} is there")


def bootstrap_version(target: PreflightTarget) -> int | None:
    """Return the version of ``cdk bootstrap`` in the account and region; None if it was not run there."""
    ssm = target.clients.ssm
    try:
        return int(ssm.get_parameter(Name=f"/cdk-bootstrap/{target.qualifier}/version")["Parameter"]["Value"])
    except ssm.exceptions.ParameterNotFound:
        return None
