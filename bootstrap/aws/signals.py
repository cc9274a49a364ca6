"""Signal CloudFormation once in a node's life: ready, or failed."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from botocore.exceptions import ClientError

from bootstrap.atomic_file import write_file
from bootstrap.config import SignalTarget
from bootstrap.contract import SIGNAL_ID_LENGTH, SIGNAL_TOO_LATE

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

log = logging.getLogger(__name__)

SIGNALED_FILE: Final = "/var/lib/deeplearning/signaled"
"""File with the instance ID and its signal. The ID reveals a file that came with an image made from another node."""


class StackSignal:
    """Sends this node's single signal to the stack, and remembers that it was sent."""

    def __init__(
        self, client: "CloudFormationClient", *, target: SignalTarget, instance_id: str, sent_file: Path
    ) -> None:
        self._client = client
        self._target = target
        self._instance_id = instance_id
        self._sent_file = sent_file
        self._is_settled = self._remembered()

    @property
    def is_settled(self) -> bool:
        """Return True if nothing is left to signal: success or failure was sent, or the stack no longer waits."""
        return self._is_settled

    def send_success(self) -> None:
        """Signal that the node is ready."""
        self._send("SUCCESS", self._instance_id)
        self.mark_settled("SUCCESS")

    def send_failure(self, reason: str) -> bool:
        """Signal a failure; return whether the stack still waited.

        The reason goes into the UniqueId, the only field that the stack event shows. If the stack no longer waits,
        the caller deals with the node and then calls ``mark_settled``.
        """
        unique_id = failure_id(self._instance_id, reason)
        in_time = self._send("FAILURE", unique_id)
        if in_time:
            self.mark_settled(unique_id)
        return in_time

    def mark_settled(self, result: str) -> None:
        """Record, also for a restarted agent, that nothing is left to signal."""
        self._is_settled = True
        write_file(self._sent_file, f"{self._instance_id} {result}\n")

    def _send(self, status: Literal["SUCCESS", "FAILURE"], unique_id: str) -> bool:
        try:
            self._client.signal_resource(
                StackName=self._target.stack_id,
                LogicalResourceId=self._target.signal_resource,
                UniqueId=unique_id,
                Status=status,
            )
        except ClientError as error:
            if SIGNAL_TOO_LATE not in error.response["Error"].get("Message", ""):
                raise
            log.info("the stack no longer waits for a signal")
            return False
        log.info("signaled %s as %r", status, unique_id)
        return True

    def _remembered(self) -> bool:
        try:
            return self._sent_file.read_text().split(" ", 1)[0] == self._instance_id
        except FileNotFoundError:
            return False


def failure_id(instance_id: str, reason: str) -> str:
    """Return the UniqueId containing the reason, truncated to AWS's limit."""
    return f"{instance_id} {reason}"[:SIGNAL_ID_LENGTH]
