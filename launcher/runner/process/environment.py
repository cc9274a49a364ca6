"""Build a process's environment and choose its working directory."""

import os
from _collections_abc import Callable, Mapping, Sequence  # importing collections is slow

from launcher.errors import LaunchError
from launcher.paths import SSH_AGENT_VARIABLE
from launcher.runner.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.spec import NodeSpec, ProcessSpec


def process_environment(
    spec: "NodeSpec", process: "ProcessSpec", *, base: Mapping[str, str], cwd: str, interface: str | None
) -> dict[str, str]:
    """Merge variables: defaults, the node's, the route's interface, the job's, the process's. The last value wins.

    PWD is the working directory, as in a shell (POSIX.1-2017, Shell, 2.5.3).
    """
    # A job must not be able to sign as the user who started it.
    environment = spec.defaults | {name: value for name, value in base.items() if name != SSH_AGENT_VARIABLE}
    directories = [directory for directory in spec.path_prefix if os.path.isdir(directory)]
    if directories:
        environment["PATH"] = ":".join([*directories, base.get("PATH", os.defpath)])
    if interface is not None:
        environment |= dict.fromkeys(spec.interface_variables, interface)
    return environment | spec.environment | process.environment | {"PWD": cwd}


def check_interfaces(
    environment: Mapping[str, str], names: Sequence[str], *, routed: str | None, present: Callable[[], Sequence[str]]
) -> None:
    """Raise LaunchError if a variable names an interface that this node lacks, because the framework would wait for it.

    Accept NCCL's forms too: a list, prefixes, and ``^`` or ``=`` before them. `present` asks the kernel for all
    interfaces; it is called only if a variable names an interface other than the route's.
    """
    for name in names:
        value = environment.get(name, "")
        prefixes = [prefix for prefix in value.lstrip("^=").split(",") if prefix]
        if value == routed or not prefixes:
            continue
        interfaces = present()
        if not any(interface.startswith(prefix) for prefix in prefixes for interface in interfaces):
            raise LaunchError(f"{name} must name an interface of {', '.join(interfaces)}, got {value!r}")


def working_directory(requested: str, *, home: str) -> tuple[str, bool]:
    """Return the requested directory if it can be entered, else the home directory and True."""
    path = os.path.join(home, os.path.expanduser(requested))
    return (path, False) if os.path.isdir(path) and os.access(path, os.X_OK) else (home, True)
