"""Check that no stack of the cluster's name prevents a deploy, and that nothing prevents the stack's deletion."""

from collections.abc import Iterator, Mapping

from bootstrap.contract import (
    CLUSTER_NAME_OUTPUT,
    KMS_KEY_OUTPUT,
    PRIVATE_OUTPUT,
    ROLE_PREFIX_OUTPUT,
    SHARED_STORAGE_OUTPUT,
)
from cli.preflight.account.permissions import execution_role
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import PreflightTarget, find_current_stack
from cli.stack_states import BLOCKED, next_step
from stacks.settings.lifetime import DELETE, DELETE_AFTER
from stacks.settings.parsing import format_utc
from stacks.settings.storage import NO_SHARED_STORAGE


def check_stack(target: PreflightTarget) -> Iterator[Finding]:
    """Report the stack of the cluster's name, and whether a deploy can use it."""
    name, stack = target.props.cluster_name, find_current_stack(target)
    if stack is None:
        yield ok("stack", f"there is no stack {name} yet")
        return
    status = stack["StackStatus"]
    now = f"stack {name} is {status}"
    outputs = {out.get("OutputKey", ""): out.get("OutputValue", "") for out in stack.get("Outputs", [])}
    if status == "REVIEW_IN_PROGRESS":
        yield ok("stack", f"{now}: nothing was created yet")
    elif status in ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED"):
        # The CDK's command line removes such a stack before it deploys (aws-cdk, deploy-stack).
        yield warning("stack", f"{now}, its deploy failed", "see dlcluster why; cdk deploy removes it first")
    elif status in BLOCKED:
        yield problem("stack", now, next_step(status, name=name, region=target.region))
    elif status.endswith("_IN_PROGRESS"):
        yield problem("stack", now, "wait until it has finished")
    elif CLUSTER_NAME_OUTPUT not in outputs:
        yield problem("stack", f"stack {name} exists but is not a cluster", "choose another cluster_name")
    else:
        yield from [*_changed_immutable_settings(target, outputs)] or [
            ok("stack", f"{now}: cdk deploy changes it"),
            *_former_key(target, outputs),
        ]


def _changed_immutable_settings(target: PreflightTarget, outputs: Mapping[str, str]) -> Iterator[Finding]:
    """Report changed settings that older stacks lack a guard for. In those stacks the setting is off.

    The guard is in stacks/immutable_settings.py.
    """
    props = target.props
    none = NO_SHARED_STORAGE
    made = props.creates_file_system and SHARED_STORAGE_OUTPUT in outputs
    for setting, value, was in (
        ("private", str(props.private).lower(), outputs.get(PRIVATE_OUTPUT, "false")),
        ("shared_storage", props.shared_storage, None if SHARED_STORAGE_OUTPUT in outputs else none),
        ("role_name_prefix", props.role_name_prefix or none, outputs.get(ROLE_PREFIX_OUTPUT, none)),
        # The key of a file system that the stack created.
        ("kms_key", props.kms_key or none, outputs.get(KMS_KEY_OUTPUT, none) if made else None),
    ):
        if was is not None and was != value:
            sentence = f"{setting} of a running cluster cannot change, got {value}, the cluster has {was}"
            yield problem("stack", sentence, "set the cluster's value again, or run cdk destroy first")


def _former_key(target: PreflightTarget, outputs: Mapping[str, str]) -> Iterator[Finding]:
    """Name the cluster's current key if nodes could no longer use it."""
    props, key = target.props, outputs.get(KMS_KEY_OUTPUT)
    if key is not None and key not in (props.kms_key, *props.data_keys):
        sentence = f"nodes lose access to objects in the bucket encrypted with the former kms_key {key}"
        yield warning("stack", sentence, "add it to data_keys")


def check_expiry_deletion(target: PreflightTarget) -> Iterator[Finding]:
    """Check that the schedule of ``expiry_action`` delete can delete the stack, a quarter of an hour after its end."""
    props, iam, role = target.props, target.clients.iam, execution_role(target)
    if props.expires_at is None or props.expiry_action != DELETE or not target.is_bootstrapped:
        return
    try:
        iam.get_role(RoleName=role.rpartition("/")[2])
    except iam.exceptions.NoSuchEntityException:
        fix = f"cdk bootstrap aws://{target.account}/{target.region}"
        yield problem("expiry", f"there is no {role}, as which CloudFormation would delete the stack", fix)
        return
    name, stack = props.cluster_name, find_current_stack(target)
    if stack is not None and stack.get("EnableTerminationProtection"):
        fix = f"aws cloudformation update-termination-protection --region {target.region} --stack-name {name}"
        sentence = f"stack {name} has termination protection: its end cannot delete it"
        yield problem("expiry", sentence, f"{fix} --no-enable-termination-protection")
    else:
        yield ok("expiry", f"the stack is deleted from {format_utc(props.expires_at + DELETE_AFTER)} on")
