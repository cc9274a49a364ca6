"""Parse the command line: ``install`` a release, ``run`` the agent, or run one of the node's other services."""

import argparse
import importlib
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bootstrap.errors import BootstrapError
from bootstrap.install import install
from bootstrap.system import System

FILESYSTEM_ROOT = Path("/")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    parser = argparse.ArgumentParser(prog="bootstrap", description="Makes an instance a node of the cluster.")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, handler: Callable[[argparse.Namespace], None], description: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=description)
        command.set_defaults(handler=handler)
        return command

    add("install", _install, "install this release and start its agent")
    add("run", _run, "run the agent until a signal stops it")
    add("mxnet-environment", _mxnet_environment, "provide the MXNet environment of the setting frameworks")
    add("shared-storage", _shared_storage, "mount the shared storage, and keep it mounted")
    add("read-ahead", _read_ahead, "read PyTorch's libraries, once after a boot")
    add("setup", _setup, "run the user's setup, unless it has succeeded on this node")
    apply = add("apply-setup", _apply_setup, "run the setup of a later deploy, and wait for its end")
    for option, kind in (("--url", str), ("--sha256", str), ("--timeout", float)):
        apply.add_argument(option, type=kind, required=True)
    image = add("prepare-image", _prepare_image, "remove this node's keys, homes and state, for an image of its disk")
    image.add_argument("--sha256", required=True, help="hash of the setup that must have succeeded here")
    arguments = parser.parse_args(argv)
    try:
        arguments.handler(arguments)
    except (BootstrapError, OSError) as error:
        print(f"bootstrap: {error}", file=sys.stderr)
        return 1
    return 0


def _configure_logging() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")


def _install(_: argparse.Namespace) -> None:
    # A bundle that cannot be imported must fail here, where the user data signals it; the service could not.
    importlib.import_module("bootstrap.agent_service")
    _configure_logging()
    install(Path(__file__).resolve().parents[1], root=FILESYSTEM_ROOT, system=System(FILESYSTEM_ROOT))


def _mxnet_environment(_: argparse.Namespace) -> None:
    from bootstrap.mxnet_environment.environment_service import provide_mxnet_environment

    _configure_logging()
    logging.getLogger("botocore").setLevel(logging.WARNING)
    provide_mxnet_environment(FILESYSTEM_ROOT)


def _shared_storage(_: argparse.Namespace) -> None:
    from bootstrap.shared_storage.mount_service import serve_shared_storage

    _configure_logging()
    serve_shared_storage(FILESYSTEM_ROOT)


def _read_ahead(_: argparse.Namespace) -> None:
    from bootstrap.read_ahead.read_ahead_service import read_ahead

    _configure_logging()
    read_ahead(FILESYSTEM_ROOT)


def _setup(_: argparse.Namespace) -> None:
    from bootstrap.setup.setup_service import serve_setup

    serve_setup(FILESYSTEM_ROOT)


def _apply_setup(arguments: argparse.Namespace) -> None:
    from bootstrap.setup.apply_setup import apply_setup
    from bootstrap.setup.archive import SetupSource

    source = SetupSource(url=arguments.url, sha256=arguments.sha256, timeout_s=arguments.timeout)
    apply_setup(source, root=FILESYSTEM_ROOT, system=System(FILESYSTEM_ROOT))


def _prepare_image(arguments: argparse.Namespace) -> None:
    from bootstrap.setup.prepare_image import prepare_image

    cgroup = Path("/proc/self/cgroup").read_text()
    prepare_image(root=FILESYSTEM_ROOT, sha256=arguments.sha256, system=System(FILESYSTEM_ROOT), cgroup=cgroup)


def _run(_: argparse.Namespace) -> None:
    # Imported late: boto3 is slow to import, and install does not need it.
    from bootstrap.agent_service import serve

    serve(FILESYSTEM_ROOT)
