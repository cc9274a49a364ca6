"""Define the setting ``engines``: the frameworks that the nodes get in addition to PyTorch."""

from dataclasses import dataclass, field
from typing import Any, Final

from stacks.catalog import instance_types
from stacks.settings.capacity import CapacitySettings
from stacks.settings.values import PARSER, SettingsError, require, shown

ENGINES: Final = ("mxnet", "horovod")
"""Values of ``engines``; ``horovod`` includes ``mxnet``."""


def parse_engines(name: str, value: Any) -> tuple[str, ...]:
    """Parse a list or text like ``a,b``; each name occurs once, and each framework follows those on which it builds."""
    names = [engine.strip() for engine in value.split(",")] if isinstance(value, str) else value
    require(isinstance(names, list), name, value, f"a list of {', '.join(ENGINES)}, or text like a,b")
    for engine in names:
        require(engine in ENGINES, name, engine, " or ".join(ENGINES))
    return tuple(engine for engine in ENGINES if engine in names)


@dataclass(frozen=True, kw_only=True)
class EngineSettings(CapacitySettings):
    """The frameworks that the nodes build or download at their first boot."""

    engines: tuple[str, ...] = field(default=(), metadata={PARSER: parse_engines})
    """Frameworks to install in addition to PyTorch: ``mxnet``, or ``horovod``, which installs MXNet, Horovod and Open
    MPI. Default: none. A change applies to nodes launched after the deploy."""

    def check(self) -> None:
        """Check the names and the processor: MXNet has wheels only for x86_64."""
        super().check()
        for engine in self.engines:
            require(engine in ENGINES, "engines", engine, " or ".join(ENGINES))
        if self.engines and instance_types.is_arm(self.instance_type):
            name = shown(self.instance_type)
            raise SettingsError(f"engines need an x86_64 instance_type, got {name}, which is ARM")
        if self.engines and not self.trains_on_master:
            raise SettingsError("engines need a master that trains, as mpirun and MXNet's scheduler start there")

    @property
    def mxnet_environment(self) -> str | None:
        """Return the name of the environment that the nodes provide; None without ``engines``.

        It is the last framework: the frameworks are in build order, and each one's environment includes the earlier
        ones (bootstrap.mxnet_environment.recipe.CONTENTS).
        """
        return self.engines[-1] if self.engines else None

    def warnings(self) -> dict[str, str]:
        """Warn that MXNet does not use GPUs."""
        warnings = super().warnings()
        if self.engines and self.gpus:
            warnings["engines-on-cpu"] = "engines: MXNet runs on the CPU only; GPUs are used only by PyTorch"
        return warnings
