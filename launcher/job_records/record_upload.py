"""Upload a job's record to the cluster's bucket with the aws command line, so that it outlives node and cluster."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bootstrap.contract import BUCKET_VARIABLE, JOBS_PREFIX, WORKER
from launcher.hosts.node_config import chosen_region, node_region, read_node_config
from launcher.job_records.records import RECORD_FILE

TIMEOUT_S = 15.0
UPLOADS_TIMEOUT_S = 2 * TIMEOUT_S
"""Seconds after the job's end that the launcher waits for a running upload and the final one."""


class RecordUpload:
    """An upload in progress."""

    def __init__(self, directory: Path, *, bucket: str, node: Mapping[str, Any]) -> None:
        key = JOBS_PREFIX + "/".join((*([node["cluster_name"]] if "cluster_name" in node else []), directory.name))
        environment = dict(os.environ)
        if (region := chosen_region() or node_region()) is not None:
            environment["AWS_DEFAULT_REGION"] = region
        with (directory / RECORD_FILE).open("rb") as record:
            self._aws = subprocess.Popen(
                ["aws", "s3", "cp", "--only-show-errors", "-", f"s3://{bucket}/{key}.json"],
                env=environment,
                stdin=record,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                # Ctrl-C in a terminal goes only to the launcher.
                start_new_session=True,
            )

    def finish(self) -> str | None:
        """Wait until it has ended; return the reason of a failure, or None."""
        try:
            _, stderr = self._aws.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._give_up()
            return f"no answer within {TIMEOUT_S:g} s"
        except KeyboardInterrupt:
            self._give_up()
            return "interrupted"
        lines = stderr.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return None if self._aws.returncode == 0 else f"aws: {last or f'exit code {self._aws.returncode}'}"

    def _give_up(self) -> None:
        self._aws.kill()
        self._aws.communicate()


def start_upload(directory: Path) -> RecordUpload | None:
    """Start the upload of the record in a job's directory; None without a bucket, and on a worker. Raises OSError."""
    bucket, node = os.environ.get(BUCKET_VARIABLE), read_node_config()
    # The workers' role has no access to the records.
    return RecordUpload(directory, bucket=bucket, node=node) if bucket and node.get("node_type") != WORKER else None


def upload(directory: Path) -> str | None:
    """Upload the record in a job's directory; return the reason of a failure, or None."""
    try:
        started = start_upload(directory)
    except OSError as error:
        return f"cannot run aws: {error.strerror}"
    return None if started is None else started.finish()
