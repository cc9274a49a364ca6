"""Make durable jobs."""

from collections.abc import Callable
from pathlib import Path

from launcher.durable.bucket import BucketLocation
from launcher.durable.record import DurableRecord
from launcher.options.parser import parse_options
from launcher.spec import JobSpec

LOCATION = BucketLocation(bucket="bucket", cluster="team", region="us-east-1")
Submit = Callable[..., DurableRecord]


def durable_job(*words: str, home: Path) -> tuple[JobSpec, list[str]]:
    hosts = home / "hosts"
    hosts.write_text("one\ntwo\n")
    arguments = ["--durable", *words]
    return parse_options(arguments, environ={"DEEPLEARNING_WORKERS_PATH": str(hosts)}), arguments
