"""Who builds an environment, who fetches it, and what the agent hears. The bucket is moto's, tar is real."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from bootstrap.aws import Clients
from bootstrap.contract import ENGINES, MPIRUN_COMMAND
from bootstrap.engines.archive import Archive
from bootstrap.engines.errors import EnginesError
from bootstrap.engines.provide import Surroundings, provide
from bootstrap.engines.recipe import Recipe
from bootstrap.engines.state import Engines, State, read_state
from bootstrap.node import place
from tests.bootstrap.cluster import REGION, Clock

pytestmark = pytest.mark.allow_subprocess
BUCKET = "digits-bucket"
RECIPE = Recipe(name="horovod", python=(3, 11), machine="x86_64", libc="glibc2.36")


@dataclass
class Node:
    """One node's disk, and what was done on it."""

    root: Path
    clients: Clients
    clock: Clock = field(default_factory=Clock)
    builds: int = 0
    states: list[str] = field(default_factory=list)
    offline: int = 0
    """So many times S3 is out of reach."""
    stored_while_waiting: Callable[[], None] | None = None

    def provide(self, *, is_master: bool, recipe: Recipe = RECIPE) -> None:
        here = Surroundings(
            root=self.root, archive=self._archive, build=self._build, monotonic=self.clock, sleep=self._sleep
        )
        provide(recipe, is_master=is_master, wait_s=60.0, here=here)

    def _archive(self, recipe: Recipe) -> Archive:
        if self.offline:
            self.offline -= 1
            raise EndpointConnectionError(endpoint_url="s3")
        return Archive(self.clients.s3, bucket=BUCKET, key=recipe.object_key)

    def _build(self, recipe: Recipe, directory: Path) -> None:
        self.builds += 1
        self.states.append(read_state(self.root).doing)
        (directory / "bin").mkdir(parents=True)
        for name in ("python", "mpirun"):
            program = directory / "bin" / name
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
        (directory / "bin/python3").symlink_to("python")
        (directory / "engines").write_text("".join(f"{engine}\n" for engine in recipe.engines))

    def _sleep(self, seconds: float) -> None:
        self.states.append(read_state(self.root).doing)
        self.clock.now += seconds
        if self.stored_while_waiting:
            self.stored_while_waiting()

    @property
    def programs(self) -> Path:
        return place(self.root, RECIPE.directory) / "bin"


@pytest.fixture
def node(clients: Clients, tmp_path: Path) -> Iterator[Callable[[str], Node]]:
    with mock_aws():
        clients.s3.create_bucket(  # type: ignore[attr-defined]  # a client of boto3
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        yield lambda name: Node(root=tmp_path / name, clients=clients)


def test_the_master_builds_and_a_worker_fetches_the_same(node: Callable[[str], Node]) -> None:
    master, worker = node("master"), node("worker")
    master.provide(is_master=True)
    worker.provide(is_master=False)
    assert (master.builds, worker.builds) == (1, 0)
    assert os.access(worker.programs / "mpirun", os.X_OK)
    assert (worker.programs / "python3").readlink() == Path("python")
    for each in (master, worker):
        assert place(each.root, ENGINES).readlink() == Path(RECIPE.directory)
        assert place(each.root, MPIRUN_COMMAND).readlink() == Path(ENGINES, "bin/mpirun")
        assert Engines(each.root, name="horovod").ready()


def test_a_replaced_master_fetches_what_the_first_one_built(node: Callable[[str], Node]) -> None:
    node("first").provide(is_master=True)
    second = node("second")
    second.provide(is_master=True)
    assert second.builds == 0
    assert (second.programs / "python").is_file()


def test_a_worker_waits_for_the_master_and_says_so(node: Callable[[str], Node]) -> None:
    master, worker = node("master"), node("worker")
    worker.stored_while_waiting = lambda: master.provide(is_master=True)
    worker.provide(is_master=False)
    assert worker.states == ["waiting-for-master"]


def test_fails_when_the_master_never_stores_it(node: Callable[[str], Node]) -> None:
    worker = node("worker")
    with pytest.raises(EnginesError, match=r"^engines/horovod-.*\.tar\.gz is not to be had") as failure:
        worker.provide(is_master=False)
    assert failure.value.short == "not in the bucket"
    assert worker.clock.now >= 1060.0


def test_a_node_waits_for_its_way_to_the_bucket(node: Callable[[str], Node]) -> None:
    node("master").provide(is_master=True)
    worker = node("worker")
    worker.offline = 3
    worker.provide(is_master=False)
    assert len(worker.states) == 3


def test_an_upload_that_failed_is_made_up_for_without_another_build(node: Callable[[str], Node]) -> None:
    master, worker = node("master"), node("worker")
    stored = Archive.store
    failures = [EndpointConnectionError(endpoint_url="s3")]

    def store(archive: Archive, directory: Path) -> None:
        if failures:
            raise failures.pop()
        stored(archive, directory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Archive, "store", store)
        master.provide(is_master=True)
    worker.provide(is_master=False)
    assert master.builds == 1


def test_after_a_reboot_a_worker_needs_no_bucket(node: Callable[[str], Node]) -> None:
    node("master").provide(is_master=True)
    worker = node("worker")
    worker.provide(is_master=False)
    worker.offline = 100
    worker.provide(is_master=False)
    assert worker.offline == 100


def test_what_a_killed_build_left_is_built_anew(node: Callable[[str], Node]) -> None:
    master = node("master")
    (place(master.root, RECIPE.directory) / "lib").mkdir(parents=True)
    master.provide(is_master=True)
    assert master.builds == 1


def test_a_command_of_the_images_own_is_left_alone(node: Callable[[str], Node]) -> None:
    master = node("master")
    mpirun = place(master.root, MPIRUN_COMMAND)
    mpirun.parent.mkdir(parents=True)
    mpirun.write_text("the image's")
    master.provide(is_master=True)
    assert mpirun.read_text() == "the image's"


def test_the_agent_is_told_what_is_done_and_why_it_failed(tmp_path: Path) -> None:
    from bootstrap.engines.state import write_state

    engines = Engines(tmp_path, name="mxnet")
    assert not engines.ready()
    assert engines.waiting == "engines: starting"
    write_state(tmp_path, State(doing="failed", failure="no C++ compiler", detail="to compile Horovod takes c++"))
    with pytest.raises(EnginesError, match=r"^to compile Horovod takes c\+\+$"):
        engines.ready()
    assert Engines(tmp_path, name=None).ready()
