"""Parse the command line: ``install`` a release, ``run`` the agent, or run one of the node's other services."""

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from bootstrap.errors import BootstrapError
from bootstrap.install import install
from bootstrap.system import System

ROOT = Path("/")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    parser = argparse.ArgumentParser(prog="bootstrap", description="Makes an instance a node of the cluster.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="install this release and start its agent")
    commands.add_parser("run", help="run the agent until a signal stops it")
    commands.add_parser("mxnet-environment", help="provide the MXNet environment of the setting engines")
    commands.add_parser("shared-storage", help="mount the shared storage, and keep it mounted")
    commands.add_parser("read-ahead", help="read PyTorch's libraries, once after a boot")
    commands.add_parser("setup", help="run the user's setup, unless it has succeeded on this node")
    apply = commands.add_parser("apply-setup", help="run the setup of a later deploy, and wait for its end")
    for option, kind in (("--url", str), ("--sha256", str), ("--timeout", float)):
        apply.add_argument(option, type=kind, required=True)
    image = commands.add_parser(
        "prepare-image", help="remove this node's keys, homes and state, for an image of its disk"
    )
    image.add_argument("--sha256", required=True, help="hash of the setup that must have succeeded here")
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "install":
            # A bundle that cannot be imported must fail here, where the user data signals it; the service could not.
            importlib.import_module("bootstrap.service")
            _log_to_the_journal()
            install(Path(__file__).resolve().parents[1], root=ROOT, services=System(ROOT))
        elif arguments.command == "mxnet-environment":
            _mxnet_environment()
        elif arguments.command == "shared-storage":
            _shared_storage()
        elif arguments.command == "read-ahead":
            _read_ahead()
        elif arguments.command == "setup":
            _setup()
        elif arguments.command == "apply-setup":
            _apply_setup(arguments)
        elif arguments.command == "prepare-image":
            _prepare_image(arguments.sha256)
        else:
            _run()
    except (BootstrapError, OSError) as error:
        print(f"bootstrap: {error}", file=sys.stderr)
        return 1
    return 0


def _log_to_the_journal() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")


def _mxnet_environment() -> None:
    from bootstrap.mxnet_environment.service import provide_mxnet_environment

    _log_to_the_journal()
    logging.getLogger("botocore").setLevel(logging.WARNING)
    provide_mxnet_environment(ROOT)


def _shared_storage() -> None:
    from bootstrap.shared_storage.service import serve_shared_storage

    _log_to_the_journal()
    serve_shared_storage(ROOT)


def _read_ahead() -> None:
    from bootstrap.read_ahead.service import read_ahead

    _log_to_the_journal()
    read_ahead(ROOT)


def _setup() -> None:
    from bootstrap.setup.service import serve_setup

    serve_setup(ROOT)


def _apply_setup(arguments: argparse.Namespace) -> None:
    from bootstrap.setup.apply_setup import apply_setup
    from bootstrap.setup.archive import SetupSource

    source = SetupSource(url=arguments.url, sha256=arguments.sha256, timeout_s=arguments.timeout)
    apply_setup(source, root=ROOT, services=System(ROOT))


def _prepare_image(sha256: str) -> None:
    from bootstrap.setup.prepare_image import prepare_image

    cgroup = Path("/proc/self/cgroup").read_text()
    prepare_image(root=ROOT, sha256=sha256, services=System(ROOT), cgroup=cgroup)


def _run() -> None:
    # Imported late: boto3 is slow to import, and install does not need it.
    from bootstrap.service import serve

    serve(ROOT)
