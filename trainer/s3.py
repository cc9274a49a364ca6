"""Read and write files in S3 with the AWS command line; data/images/s3_object.py reads parts of one, with boto3."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from pathlib import Path
from typing import Final

from trainer.atomic_file import temporary_path
from trainer.errors import TrainerError

SCHEME: Final = "s3://"
LIST_TIMEOUT_S: Final = 180.0
"""Longest time for a request without a transfer, in seconds. A single connection attempt may take 60 s ("AWS CLI
Command Reference", --cli-connect-timeout), and a new machine loads the command line itself block by block ("Initialize
Amazon EBS volumes")."""
TRANSFER_TIMEOUT_S: Final = 1800.0
"""Longest time for one transfer, in seconds: 10 GB at 50 Mbit/s."""
NO_SUCH_KEY: Final = 1
"""Exit code of ``aws s3 ls`` when no object has the prefix ("AWS CLI Command Reference", s3 ls)."""
NO_METADATA: Final[Mapping[str, str]] = {}
NODE_CONFIG_FILE: Final = Path("/etc/deeplearning/node.json")
"""File with the node's region; same as bootstrap.contract.NODE_CONFIG_FILE, which the trainer does not import."""
REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
PROFILE_VARIABLES: Final = ("AWS_DEFAULT_PROFILE", "AWS_PROFILE")


class S3Folder:
    """A folder in S3, as its console shows one: the objects with a common prefix, used like files."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def __str__(self) -> str:
        return self._url

    def names(self, *, starting_with: str) -> list[str]:
        """Return the names in the folder that start like this, sorted."""
        listing = _aws(["s3", "ls", f"{self._url}/{starting_with}"], timeout_s=LIST_TIMEOUT_S, allowed=(0, NO_SUCH_KEY))
        # A line has date, time, size and name, or PRE and the name of a folder.
        rows = (line.split(maxsplit=3) for line in listing.splitlines())
        return sorted(row[3] for row in rows if len(row) == 4)

    def metadata(self, name: str) -> Mapping[str, str]:
        """Return the metadata that ``upload`` set on an object; empty if there is no such object."""
        if name not in self.names(starting_with=name):
            return {}
        url = f"{self._url}/{name}"
        bucket, _, key = url.removeprefix(SCHEME).partition("/")
        command = ["s3api", "head-object", "--bucket", bucket, "--key", key, "--output", "json"]
        metadata: Mapping[str, str] = json.loads(_aws(command, timeout_s=LIST_TIMEOUT_S, about=url)).get("Metadata", {})
        return metadata

    def upload(self, path: Path, name: str, *, metadata: Mapping[str, str] = NO_METADATA) -> None:
        """Upload a file; S3 shows it only once it is complete."""
        options = ["--metadata", ",".join(f"{key}={value}" for key, value in metadata.items())] if metadata else []
        _aws(
            ["s3", "cp", "--only-show-errors", *options, str(path), f"{self._url}/{name}"],
            timeout_s=TRANSFER_TIMEOUT_S,
        )

    def download(self, name: str, path: Path) -> None:
        """Download an object to a file atomically."""
        temporary = temporary_path(path)
        try:
            _aws(
                ["s3", "cp", "--only-show-errors", f"{self._url}/{name}", str(temporary)], timeout_s=TRANSFER_TIMEOUT_S
            )
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def download_all(self, directory: Path, *, timeout_s: float) -> None:
        """Make the directory equal to the folder; unchanged files are not downloaded again."""
        _aws(
            ["s3", "sync", "--only-show-errors", "--delete", "--exact-timestamps", f"{self._url}/", str(directory)],
            timeout_s=timeout_s,
        )

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        _aws(["s3", "rm", "--only-show-errors", f"{self._url}/{name}"], timeout_s=LIST_TIMEOUT_S)


def node_region() -> str | None:
    """Return the region of this node; None on a machine outside of a cluster."""
    try:
        region = json.loads(NODE_CONFIG_FILE.read_text())["region"]
    except (OSError, ValueError, KeyError):
        return None
    return str(region)


def _environment() -> dict[str, str]:
    """Return the variables of ``aws``, with the node's region unless the user named one.

    Nodes set no variable for it. Without a region, ``aws`` asks us-east-1, which knows no bucket of GovCloud or China.
    """
    environment = dict(os.environ)
    named_by_user = any(environment.get(name) for name in REGION_VARIABLES) or _has_region_in_file(environment)
    if not named_by_user and (region := node_region()) is not None:
        environment["AWS_DEFAULT_REGION"] = region
    return environment


def _has_region_in_file(environment: Mapping[str, str]) -> bool:
    """Return True if the user's profile in AWS's configuration file has a region; those of SSO often have none."""
    profile = next(filter(None, map(environment.get, PROFILE_VARIABLES)), "default")
    config = ConfigParser(strict=False, interpolation=None)
    try:
        config.read(Path(environment.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser(), encoding="utf-8")
    except (ConfigParserError, ValueError):
        return False  # ``aws`` reports what is wrong with the file.
    # Only the default profile may do without the word.
    sections = [f"profile {profile}", *(["default"] if profile == "default" else [])]
    return any(config.get(section, "region", fallback="") for section in sections)


def _aws(arguments: Sequence[str], *, timeout_s: float, allowed: Sequence[int] = (0,), about: str = "") -> str:
    """Run ``aws``; if it fails raise TrainerError with its last line and the object's URL."""
    about = about or next(word for word in arguments if word.startswith(SCHEME))
    action = f"aws {arguments[0]} {arguments[1]} {about}"
    try:
        done = subprocess.run(
            ["aws", *arguments],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except FileNotFoundError as error:
        raise TrainerError(f"{action}: the AWS command line is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise TrainerError(f"{action}: timed out after {timeout_s:g} s") from error
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if done.returncode not in allowed or (done.returncode and lines):
        raise TrainerError(f"{action}: {lines[-1] if lines else f'exit code {done.returncode}'}")
    return done.stdout
