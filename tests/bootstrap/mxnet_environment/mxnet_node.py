"""Simulate a node with its own disk that provides itself with an environment; the bucket is moto's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from botocore.exceptions import EndpointConnectionError

from bootstrap.aws.clients import Clients
from bootstrap.errors import MxnetEnvironmentError
from bootstrap.files.paths import under_root
from bootstrap.mxnet_environment.archive import Archive
from bootstrap.mxnet_environment.archive_hash import HashRecord
from bootstrap.mxnet_environment.install_environment import EnvironmentDependencies, install_environment
from bootstrap.mxnet_environment.progress import read_progress
from bootstrap.mxnet_environment.recipe import Recipe
from tests.bootstrap.simulated_node import Clock

BUCKET = "digits-bucket"
TABLE = "digits-table"
RECIPE = Recipe(name="horovod", python=(3, 11), machine="x86_64", libc="glibc2.36")


@dataclass
class MxnetNode:
    """One node's disk, and a log of what was done on it."""

    root: Path
    clients: Clients
    clock: Clock = field(default_factory=Clock)
    builds: int = 0
    states: list[str] = field(default_factory=list)
    offline: int = 0
    """Number of further calls for which S3 is unreachable."""
    stored_while_waiting: Callable[[], None] | None = None
    failures: list[MxnetEnvironmentError] = field(default_factory=list)
    """Failures of the next builds."""
    why: list[str | None] = field(default_factory=list)
    paused: list[float] = field(default_factory=list)

    def install_environment(self, *, is_master: bool, recipe: Recipe = RECIPE) -> None:
        dependencies = EnvironmentDependencies(
            root=self.root,
            archive=self._archive,
            record=self._record,
            build=self._build,
            monotonic=self.clock,
            sleep=self._sleep,
        )
        install_environment(recipe, is_master=is_master, wait_s=60.0, dependencies=dependencies)

    def _archive(self, recipe: Recipe) -> Archive:
        if self.offline:
            self.offline -= 1
            raise EndpointConnectionError(endpoint_url="s3")
        return Archive(self.clients.s3, bucket=BUCKET, key=recipe.object_key("demo"))

    def _record(self) -> HashRecord:
        return HashRecord(self.clients.dynamodb, table=TABLE)

    def _build(self, recipe: Recipe, directory: Path, limit_s: float) -> None:
        assert 1.0 <= limit_s <= 60.0
        self.builds += 1
        self.states.append(read_progress(self.root).state)
        self.why.append(read_progress(self.root).why)
        if self.failures:
            raise self.failures.pop(0)
        (directory / "bin").mkdir(parents=True)
        for name in ("python", "mpirun"):
            program = directory / "bin" / name
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
        (directory / "bin/python3").symlink_to("/usr/bin/python3")
        (directory / "lib64").symlink_to("lib")
        (directory / "frameworks").write_text("".join(f"{framework}\n" for framework in recipe.frameworks))

    def _sleep(self, seconds: float) -> None:
        self.states.append(read_progress(self.root).state)
        self.clock.now += seconds
        self.paused.append(seconds)
        if self.stored_while_waiting:
            self.stored_while_waiting()

    @property
    def programs(self) -> Path:
        return under_root(self.root, RECIPE.directory) / "bin"
