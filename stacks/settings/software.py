"""Define the settings for what every node installs: the user's setup, and frameworks besides PyTorch."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from bootstrap.contract import SETUP_REQUIREMENTS, SETUP_SCRIPT
from stacks.catalog import instance_types
from stacks.settings.base import Settings, SettingsError, require, shown
from stacks.settings.nodes import CapacitySettings
from stacks.settings.parsing import PARSER, parse_duration

FRAMEWORKS: Final = ("mxnet", "horovod")
"""Values of the setting ``frameworks``; ``horovod`` includes ``mxnet``."""
_MAX_FILE: Final = 1 << 20
_MAX_TIMEOUT: Final = timedelta(hours=6)
_LOCAL_REQUIREMENT: Final = re.compile(
    r"""
    \s*(?:
        -[rce] | --(?:requirement|constraint|editable)\b
        | (?:-f|--find-links\b)(?!\s*=?\s*https?://)
        | [^\s@:;\#\[]*/ | \.\.?\s*\Z       # a path
        | [^\s@:;\#\[]+\.(?:whl|zip|tar\.\w+)\b
        | [^\#]*\bfile:
    )""",
    re.VERBOSE,
)
"""Matches a line of a requirements file that names another file, because nodes get only the one file."""

_CDK_REQUIREMENT: Final = re.compile(rb"^\s*aws-cdk-lib\b", re.MULTILINE)


def parse_frameworks(name: str, value: Any) -> tuple[str, ...]:
    """Parse a list or text like ``a,b``; return each name once, in the order of FRAMEWORKS, the build order."""
    names = [framework.strip() for framework in value.split(",")] if isinstance(value, str) else value
    require(isinstance(names, list), name, value, f"a list of {', '.join(FRAMEWORKS)}, or text like a,b")
    for framework in names:
        require(framework in FRAMEWORKS, name, framework, " or ".join(FRAMEWORKS))
    return tuple(framework for framework in FRAMEWORKS if framework in names)


@dataclass(frozen=True, kw_only=True)
class SetupSettings(Settings):
    """The user's own environment on the nodes."""

    setup: str | None = None
    """Script, a path relative to cdk.json, that every new node runs as root before it joins the cluster. A
    change applies to nodes launched after the deploy."""
    requirements: str | None = None
    """File of requirements, named likewise, that every new node installs with pip into the image's PyTorch environment,
    after ``setup``."""
    setup_timeout: str = "15m"
    """Time for both, like ``15m`` or ``2h``; a node that is not done by then has failed."""

    def check(self) -> None:
        """Read the files, so that a missing one is found before anything is created."""
        super().check()
        self.setup_files()
        time = parse_duration(self.setup_timeout)
        in_range = time is not None and time <= _MAX_TIMEOUT
        require(in_range, "setup_timeout", self.setup_timeout, "a time like 15m or 2h, at most 6h")

    def warnings(self) -> dict[str, str]:
        """Warn if the nodes would install the requirements of the CDK app itself."""
        warnings = super().warnings()
        if self.requirements is not None and _CDK_REQUIREMENT.search(_read("requirements", self.requirements)):
            warnings["requirements-of-the-cdk"] = (
                f"requirements is {shown(self.requirements)}, which names aws-cdk-lib: it looks like the CDK app's own "
                "file; name one for the nodes"
            )
        return warnings

    @property
    def setup_timeout_s(self) -> int | None:
        """Return the seconds that a node has for its setup; None if there is none."""
        time = parse_duration(self.setup_timeout)
        return int(time.total_seconds()) if time and (self.setup or self.requirements) else None

    def setup_files(self) -> dict[str, bytes]:
        """Return the contents of the files, by their names on a node. Raises SettingsError."""
        return dict(self._files())

    def _files(self) -> Iterator[tuple[str, bytes]]:
        if self.setup is not None:
            content = _read("setup", self.setup)
            _check_script(self.setup, content)
            yield SETUP_SCRIPT, content
        if self.requirements is not None:
            content = _read("requirements", self.requirements)
            _check_requirements(self.requirements, content)
            yield SETUP_REQUIREMENTS, content


@dataclass(frozen=True, kw_only=True)
class FrameworkSettings(CapacitySettings):
    """The frameworks that the nodes build or download at their first boot."""

    frameworks: tuple[str, ...] = field(default=(), metadata={PARSER: parse_frameworks})
    """Frameworks to install in addition to PyTorch: ``mxnet``, or ``horovod``, which installs MXNet, Horovod and Open
    MPI. Default: none. A change applies to nodes launched after the deploy."""

    def check(self) -> None:
        """Check the names and the processor: MXNet has wheels only for x86_64."""
        super().check()
        for framework in self.frameworks:
            require(framework in FRAMEWORKS, "frameworks", framework, " or ".join(FRAMEWORKS))
        if self.frameworks and instance_types.is_arm(self.instance_type):
            name = shown(self.instance_type)
            raise SettingsError(f"frameworks need an x86_64 instance_type, got {name}, which is ARM")
        if self.frameworks and not self.effective_master_trains:
            raise SettingsError("frameworks need a master that trains, as mpirun and MXNet's scheduler start there")

    @property
    def mxnet_environment(self) -> str | None:
        """Return the name of the environment that the nodes provide; None without ``frameworks``.

        It is the last framework: the frameworks are in build order, and each one's environment includes the earlier
        ones (bootstrap.mxnet_environment.recipe.CONTENTS).
        """
        return self.frameworks[-1] if self.frameworks else None

    def warnings(self) -> dict[str, str]:
        """Warn that MXNet does not use GPUs."""
        warnings = super().warnings()
        if self.frameworks and self.gpus:
            warnings["frameworks-on-cpu"] = "frameworks: MXNet runs on the CPU only; GPUs are used only by PyTorch"
        return warnings


def _read(name: str, file: str) -> bytes:
    path = Path(file)
    # A Path raises OSError for a name that is too long.
    is_file = os.path.isfile(path)  # noqa: PTH113
    require(is_file, name, file, "a file, as a path relative to cdk.json")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{name} must be readable, got {shown(file)}: {error.strerror}") from None
    require(len(content) <= _MAX_FILE, f"size of {file}", len(content), f"at most {_MAX_FILE} bytes")
    return content


def _check_script(file: str, content: bytes) -> None:
    first = content.split(b"\n", 1)[0].decode(errors="replace")
    require(first.startswith("#!/"), f"first line of {file}", first, "like #!/bin/bash")
    require(not first.endswith("\r"), f"first line of {file}", first, "without a carriage return: use Unix line ends")


def _check_requirements(file: str, content: bytes) -> None:
    for line in content.decode(errors="replace").splitlines():
        allowed = "a requirement, not another file: nodes get this one alone"
        require(not _LOCAL_REQUIREMENT.match(line), f"line of {file}", line, allowed)
