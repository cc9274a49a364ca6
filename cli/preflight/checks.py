"""List the checks before a deploy, and run them one after another."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from cli.aws.clients import Clients, aws_errors, create_clients
from cli.errors import ClusterError, CredentialsError, NoAnswerError, UsageError
from cli.preflight import egress, existing_network, price, sizes, stack
from cli.preflight.account import kms_key, permissions, prerequisites, service_role, session_manager, volume_key
from cli.preflight.finding import Finding, problem, warning
from cli.preflight.nodes import efa, image, offering, reservation
from cli.preflight.quotas import capacity, interfaces, network, volumes
from cli.preflight.storage import bucket, data_buckets, shared_storage
from cli.preflight.target import Check, PreflightTarget
from stacks.settings.props import ClusterProps

CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("credentials", prerequisites.check_credentials),
    ("settings", prerequisites.check_settings),
    ("key pair", prerequisites.check_key_pair),
    ("instance type", offering.check_offering),
    (efa.SUBJECT, efa.check_efa),
    (reservation.SUBJECT, reservation.check_reservation),
    ("vCPU quota", capacity.check_vcpu_quota),
    ("EBS quota", volumes.check_volume_quota),
    ("EBS key", volume_key.check_volume_key),
    # Check the role before the key, whose policy must name it.
    ("service role", service_role.check_auto_scaling_role),
    (kms_key.SUBJECT, kms_key.check_kms_key),
    ("AMI", image.check_image),
    ("Elastic IP", network.check_elastic_ip_quota),
    ("VPC", network.check_vpc_quota),
    (interfaces.SUBJECT, interfaces.check_interface_quota),
    ("subnets", existing_network.check_subnets),
    (egress.SUBJECT, egress.check_egress),
    ("bucket", bucket.check_bucket),
    ("data buckets", data_buckets.check_data_buckets),
    ("shared storage", shared_storage.check_shared_storage),
    ("cdk bootstrap", prerequisites.check_cdk_bootstrap),
    ("stack", stack.check_stack),
    ("expiry", stack.check_expiry_deletion),
    ("sizes", sizes.check_sizes),
    ("permissions", permissions.check_deploy_permission),
    ("permissions", permissions.check_launch_permissions),
    ("permissions", permissions.check_role_permissions),
    ("permissions", permissions.check_storage_permissions),
    ("permissions", permissions.check_boundary),
    ("permissions", permissions.check_schedule_permissions),
    ("service role", service_role.check_efs_role),
    ("service role", service_role.check_spot_role),
    ("log-in", session_manager.check_session_encryption),
    ("price", price.check_price),
)


def all_findings(region: str | None, props: ClusterProps, cdk_context: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings of every check in a region, or that there are no credentials."""
    try:
        with aws_errors(region):
            clients = create_clients(region)
    except CredentialsError as error:  # a missing profile
        yield problem("credentials", str(error), error.fix)
        return
    yield from findings(clients, props, cdk_context)


def findings(clients: Clients, props: ClusterProps, cdk_context: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings of every check; stop at the first if AWS does not answer or refuses the credentials."""
    try:
        with aws_errors(clients.region):
            target = PreflightTarget.of(clients, props, cdk_context)
    except UsageError:
        raise  # the region or the endpoint: no credentials would help
    except NoAnswerError as error:
        yield problem("connection", str(error), error.fix)
        return
    except ClusterError as error:
        yield problem("credentials", str(error), error.fix or CredentialsError.fix)
        return
    target = replace(target, is_bootstrapped=_is_bootstrapped(target))
    shown = set()
    results = (finding for subject, check in CHECKS for finding in _run_check(subject, check, target))
    for finding in results:
        # Several checks make the same call, which AWS refuses each time.
        if finding not in shown:
            shown.add(finding)
            yield finding


def _is_bootstrapped(target: PreflightTarget) -> bool:
    """Return False if AWS says that ``cdk bootstrap`` was not run; its own check reports an AWS that does not say."""
    with suppress(ClusterError), aws_errors(target.region):
        return prerequisites.bootstrap_version(target) is not None
    return True


def _run_check(subject: str, check: Check, target: PreflightTarget) -> Iterator[Finding]:
    try:
        with aws_errors(target.clients.region):
            yield from check(target)
    except ClusterError as error:
        yield warning(subject, f"could not check: {error}")
    except Exception as error:  # a bug in one check must not hide what the others find
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        yield problem(subject, f"could not check: {reason}", "this is an error in dlcluster, please report it")
