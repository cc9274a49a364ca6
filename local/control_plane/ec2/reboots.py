"""Answer RebootInstances by informing the data plane; moto does nothing."""

import os
from pathlib import Path
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import InstanceBackend

from local.control_plane.moto_patching import wrap
from local.node.reboots import request_reboot
from local.run_dir import RUN_DIR_VARIABLE


def install() -> None:
    """Patch moto: reboot nodes."""
    wrap(InstanceBackend, "reboot_instances", _reboot_instances)


def _reboot_instances(original: Any, backend: InstanceBackend, instance_ids: list[str]) -> Any:
    for instance in backend.get_multi_instances_by_id(instance_ids):
        if instance._state.name != "running":
            message = f"The instance '{instance.id}' is not in a state from which it can be rebooted."
            raise EC2ClientError("IncorrectInstanceState", message)
    rebooted = original(backend, instance_ids)
    # Nodes exist only inside a local AWS.
    if run_dir := os.environ.get(RUN_DIR_VARIABLE):
        for instance in rebooted:
            request_reboot(Path(run_dir), instance.id)
    return rebooted
