"""RebootInstances: moto only says yes; the data plane is told here."""

import os
from pathlib import Path
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import InstanceBackend

from local.aws.patching import around
from local.node.reboots import request_reboot


def install() -> None:
    """Reboot nodes."""
    around(InstanceBackend, "reboot_instances", _reboot_instances)


def _reboot_instances(original: Any, backend: InstanceBackend, instance_ids: list[str]) -> Any:
    for instance in backend.get_multi_instances_by_id(instance_ids):
        if instance._state.name != "running":
            message = f"The instance '{instance.id}' is not in a state from which it can be rebooted."
            raise EC2ClientError("IncorrectInstanceState", message)
    rebooted = original(backend, instance_ids)
    # Only inside a local AWS there are nodes.
    if run_dir := os.environ.get("LOCAL_AWS_DIR"):
        for instance in rebooted:
            request_reboot(Path(run_dir), instance.id)
    return rebooted
