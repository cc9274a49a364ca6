"""The environment and directory of a process."""

import os
from _collections_abc import Callable, Mapping, Sequence  # collections takes long to import

from launcher.errors import LaunchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.job.spec import NodeSpec, ProcessSpec

AGENT_VARIABLE = "SSH_AUTH_SOCK"


def process_environment(
    spec: "NodeSpec", process: "ProcessSpec", *, base: Mapping[str, str], cwd: str, interface: str | None
) -> dict[str, str]:
    """Defaults, the node's variables, the route's interface, the job's variables, the process's: later ones win.

    PWD is where the process starts, as a shell would have it (POSIX.1-2017, Shell, 2.5.3).
    """
    # A job must not be able to sign as the user who started it.
    environment = spec.defaults | {name: value for name, value in base.items() if name != AGENT_VARIABLE}
    bins = [directory for directory in spec.bins if os.path.isdir(directory)]
    if bins:
        environment["PATH"] = ":".join([*bins, base.get("PATH", os.defpath)])
    if interface is not None:
        environment |= dict.fromkeys(spec.interface_variables, interface)
    return environment | spec.environment | process.environment | {"PWD": cwd}


def check_interfaces(
    environment: Mapping[str, str], names: Sequence[str], *, routed: str | None, present: Callable[[], Sequence[str]]
) -> None:
    """LaunchError when a variable names no interface of this node: engines wait for ever for one.

    Takes NCCL's forms too: a list, prefixes, and ``^`` or ``=`` before them. `present` asks the kernel for all
    interfaces, which need not be when none but the one on the route is named.
    """
    for name in names:
        value = environment.get(name, "")
        wanted = [one for one in value.lstrip("^=").split(",") if one]
        if value == routed or not wanted:
            continue
        interfaces = present()
        if not any(interface.startswith(one) for one in wanted for interface in interfaces):
            raise LaunchError(f"{name} must name an interface of {', '.join(interfaces)}, got {value!r}")


def working_directory(wanted: str, *, home: str) -> tuple[str, bool]:
    """The directory that is asked for where this node has it and lets us in, else the home directory and True."""
    path = os.path.join(home, os.path.expanduser(wanted))
    return (path, False) if os.path.isdir(path) and os.access(path, os.X_OK) else (home, True)
