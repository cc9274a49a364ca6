"""Check that the launcher fits --framework; recognize parameter servers, and set the default of --kv-store.

Rank and world size are in world.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from trainer.config.settings import TrainConfig
from trainer.errors import UsageError

ROLE: Final = "DMLC_ROLE"
SERVER_ROLES: Final = ("server", "scheduler")
LAUNCHER_VARIABLES: Final = {
    "torch": ("WORLD_SIZE",),
    "mxnet": (ROLE,),
    "horovod": ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE"),
}
"""Variables that only processes of each framework have."""
PROCESS_COUNTS: Final = {"torch": "WORLD_SIZE", "mxnet": "DMLC_NUM_WORKER"}
"""Variable with the number of processes, by framework; Horovod needs none, because it has only one kv-store."""
NO_EVIDENCE: Final = ("", "1")
"""Numbers of processes that do not reveal the framework: none, or a single process."""


def is_server(environment: Mapping[str, str]) -> bool:
    """Return True if this process is one of MXNet's parameter servers or their scheduler."""
    return environment.get(ROLE) in SERVER_ROLES


def choose_kv_store(config: TrainConfig, environment: Mapping[str, str]) -> TrainConfig:
    """Set kv-store to dist_sync if the user left it open and the launcher started several processes."""
    is_alone = environment.get(PROCESS_COUNTS.get(config.framework, ""), "") in NO_EVIDENCE
    return config if config.kv_store or is_alone else replace(config, kv_store="dist_sync")


def check_launcher(framework: str, environment: Mapping[str, str]) -> None:
    """Raise UsageError for a framework whose ranks would not find each other: each would train its own model."""
    launched = {
        name: variable
        for name, variables in LAUNCHER_VARIABLES.items()
        for variable in variables
        if environment.get(variable, "") not in NO_EVIDENCE
    }
    if launched and framework not in launched:
        [(other, variable), *_] = launched.items()
        raise UsageError(
            f"--framework {framework} needs `launch --framework {framework}`, got processes of "
            f"`launch --framework {other}` ({variable} is {environment[variable]})"
        )
