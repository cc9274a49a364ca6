"""Find the file system that nodes mount, on the master only; the membership carries the answer to the others.

The stack creates the file system in parallel with the nodes, so their configuration cannot name it.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from bootstrap.aws.clients import Clients
from bootstrap.cluster.record_validation import RecordError, check_shared_storage
from bootstrap.config import NodeConfig

log = logging.getLogger(__name__)

FIRST_BACKOFF_S: Final = 2.0
MAX_BACKOFF_S: Final = 60.0
"""Longest time between queries, in seconds. It doubles after each, which may take seconds of a coordinator's pass."""


class FileSystemLookup:
    """Queries AWS until it has answered once; an error never delays the membership."""

    def __init__(self, config: NodeConfig, clients: Clients, *, monotonic: Callable[[], float]) -> None:
        self._config = config
        self._clients = clients
        self._monotonic = monotonic
        self._found = ""
        self._next_query = 0.0
        self._backoff_s = FIRST_BACKOFF_S
        self._error = ""

    def find(self) -> str:
        """Return contract.SHARED_STORAGE_FIELD's value; empty while it is unknown and without shared storage."""
        if self._found or self._config.shared_storage is None or self._monotonic() < self._next_query:
            return self._found
        try:
            self._found = check_shared_storage(self._query(self._config.shared_storage))
        except (BotoCoreError, ClientError, RecordError) as error:
            self._log_change(str(error))
        if not self._found:
            self._next_query = self._monotonic() + self._backoff_s
            self._backoff_s = min(MAX_BACKOFF_S, 2 * self._backoff_s)
        return self._found

    def _query(self, setting: str) -> str:
        if self._config.shared_storage_resource is not None:
            return self._query_stack(self._config.shared_storage_resource)
        return self._query_fsx(setting) if setting.startswith("lustre:") else setting

    def _query_stack(self, logical_id: str) -> str:
        answer = self._clients.stack_reader.describe_stack_resource(
            StackName=self._config.stack_id, LogicalResourceId=logical_id
        )
        file_system = answer["StackResourceDetail"].get("PhysicalResourceId", "")
        return f"efs:{file_system}" if file_system else ""

    def _query_fsx(self, setting: str) -> str:
        file_system = setting.partition(":")[2]
        answer: Any = self._clients.fsx.describe_file_systems(FileSystemIds=[file_system])
        description = answer["FileSystems"][0]
        name = description.get("LustreConfiguration", {}).get("MountName")
        if name is None:
            raise RecordError(f"{file_system} has no mount name, its type is {description['FileSystemType']}")
        return f"{setting}:{name}"

    def _log_change(self, error: str) -> None:
        if error != self._error:
            log.warning("the shared file system is not known yet: %s", error)
            self._error = error
