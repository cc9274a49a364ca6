"""Parse the options for files to copy to every node and for the Python environment to use."""

import argparse
from pathlib import Path

from launcher.errors import UsageError
from launcher.sync.request import BUCKET_URL, IGNORE_FILE, TIMEOUT_S, Fetch, SyncRequest
from launcher.validate import whole_number


def add_sync_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--sync-dst-dir",
        metavar="DIR",
        help="copy this directory to DIR on every node first, and run the command there",
    )
    parser.add_argument(
        "--sync-exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help=f"exclude files from the copy, as a line of a .gitignore does (also: {IGNORE_FILE})",
    )
    parser.add_argument(
        "--sync-overwrite",
        action="store_true",
        help="overwrite files that were changed on a node since they were sent (default: refuse)",
    )
    parser.add_argument(
        "--sync-s3",
        action="append",
        default=[],
        nargs=2,
        metavar=("SOURCE", "DIR"),
        help="have every node fetch s3://BUCKET/PREFIX to DIR first",
    )
    parser.add_argument(
        "--sync-s3-shard",
        action="store_true",
        help="have each node fetch only its share of the files of --sync-s3, one file to one node",
    )
    parser.add_argument("--venv", metavar="DIR", help="Python environment on every node whose python the ranks run")
    parser.add_argument("--sync-timeout", metavar="S", help=f"seconds for all copies together (default: {TIMEOUT_S})")


def sync_request(options: argparse.Namespace) -> SyncRequest | None:
    """Return the sync that the options request; None if they request none."""
    timeout_s = TIMEOUT_S
    if options.sync_timeout is not None:
        timeout_s = whole_number(options.sync_timeout, name="--sync-timeout")
    if options.sync_dst_dir is None and options.sync_exclude:
        raise UsageError("--sync-exclude requires --sync-dst-dir")
    if options.sync_dst_dir is None and options.sync_overwrite:
        raise UsageError("--sync-overwrite requires --sync-dst-dir")
    if options.sync_exclude:
        # Import only now: most jobs never need it.
        from launcher.sync.ignore import Ignore

        Ignore(options.sync_exclude)  # raises
    if options.sync_s3_shard and not options.sync_s3:
        raise UsageError("--sync-s3-shard requires --sync-s3")
    if options.sync_dst_dir is None and not options.sync_s3:
        if options.sync_timeout is not None:
            raise UsageError("--sync-timeout requires --sync-dst-dir or --sync-s3")
        return None
    directory = None if options.sync_dst_dir is None else _directory(options.sync_dst_dir, option="--sync-dst-dir")
    return SyncRequest(
        directory=directory,
        excludes=tuple(options.sync_exclude),
        overwrites=options.sync_overwrite,
        fetches=tuple(
            _fetch(source, directory, is_sharded=options.sync_s3_shard) for source, directory in options.sync_s3
        ),
        timeout_s=timeout_s,
    )


def venv_directory(options: argparse.Namespace) -> str | None:
    """Return the environment's directory, the same on every node; a relative one is in the home directory."""
    if options.venv is None:
        return None
    return str(Path.home() / Path(_directory(options.venv, option="--venv")).expanduser())


def _fetch(source: str, directory: str, *, is_sharded: bool) -> Fetch:
    if not BUCKET_URL.fullmatch(source):
        raise UsageError(f"--sync-s3 must name s3://BUCKET/PREFIX, got {source!r}")
    return Fetch(source=source, directory=_directory(directory, option="--sync-s3"), is_sharded=is_sharded)


def _directory(text: str, *, option: str) -> str:
    if not text or "\0" in text:
        raise UsageError(f"{option} must name a directory, got {text!r}")
    return text
