"""Who builds an environment, who fetches it, and what the agent hears. The bucket is moto's, tar is real."""

import io
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from bootstrap.aws.clients import Clients
from bootstrap.contract import (
    ENGINES,
    ENGINES_PREFIX,
    ENGINES_RECORD_ID,
    ENVIRONMENT_FIELD,
    MPIRUN_COMMAND,
    SHA256_FIELD,
    TABLE_KEY,
    VERSION_FIELD,
)
from bootstrap.errors import FrameworkError
from bootstrap.files.node_files import place
from bootstrap.frameworks import service
from bootstrap.frameworks.archive import Archive
from bootstrap.frameworks.provide import FrameworkServices, provide
from bootstrap.frameworks.recipe import Recipe
from bootstrap.frameworks.record import HashRecord
from bootstrap.frameworks.state import Frameworks, State, read_state, write_state
from tests.bootstrap.simulated_cluster import REGION, Clock, node_config

pytestmark = pytest.mark.allow_subprocess
BUCKET = "digits-bucket"
TABLE = "digits-table"
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
    failures: list[FrameworkError] = field(default_factory=list)
    """What the next builds fail with."""
    why: list[str | None] = field(default_factory=list)
    paused: list[float] = field(default_factory=list)

    def provide(self, *, is_master: bool, recipe: Recipe = RECIPE) -> None:
        services = FrameworkServices(
            root=self.root,
            archive=self._archive,
            record=self._record,
            build=self._build,
            monotonic=self.clock,
            sleep=self._sleep,
        )
        provide(recipe, is_master=is_master, wait_s=60.0, services=services)

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
        self.states.append(read_state(self.root).doing)
        self.why.append(read_state(self.root).why)
        if self.failures:
            raise self.failures.pop(0)
        (directory / "bin").mkdir(parents=True)
        for name in ("python", "mpirun"):
            program = directory / "bin" / name
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
        (directory / "bin/python3").symlink_to("/usr/bin/python3")
        (directory / "lib64").symlink_to("lib")
        (directory / "engines").write_text("".join(f"{framework}\n" for framework in recipe.frameworks))

    def _sleep(self, seconds: float) -> None:
        self.states.append(read_state(self.root).doing)
        self.clock.now += seconds
        self.paused.append(seconds)
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
        clients.dynamodb.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": TABLE_KEY, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": TABLE_KEY, "AttributeType": "S"}],
        )
        yield lambda name: Node(root=tmp_path / name, clients=clients)


def test_the_master_builds_and_a_worker_fetches_the_same(node: Callable[[str], Node]) -> None:
    master, worker = node("master"), node("worker")
    master.provide(is_master=True)
    worker.provide(is_master=False)
    assert (master.builds, worker.builds) == (1, 0)
    assert os.access(worker.programs / "mpirun", os.X_OK)
    assert (worker.programs / "python3").readlink() == Path("/usr/bin/python3")
    for each in (master, worker):
        assert place(each.root, ENGINES).readlink() == Path(RECIPE.directory)
        assert place(each.root, MPIRUN_COMMAND).readlink() == Path(ENGINES, "bin/mpirun")
        assert Frameworks(each.root, name="horovod").ready()


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
    with pytest.raises(FrameworkError, match=r"^horovod-.* was not in the bucket in time") as failure:
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

    def store(archive: Archive, directory: Path) -> str:
        if failures:
            raise failures.pop()
        return stored(archive, directory)

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
    frameworks = Frameworks(tmp_path, name="mxnet")
    assert not frameworks.ready()
    assert frameworks.waiting == "engines: starting"
    write_state(tmp_path, State(doing="failed", failure="no C++ compiler", detail="Horovod needs c++ to compile"))
    with pytest.raises(FrameworkError, match=r"^Horovod needs c\+\+ to compile$"):
        frameworks.ready()
    assert Frameworks(tmp_path, name=None).ready()


def put_archive(node: Node, content: bytes) -> None:
    """Do as a stolen node did that could write into the bucket."""
    node.clients.s3.put_object(  # type: ignore[attr-defined]  # a client of boto3
        Bucket=BUCKET, Key=RECIPE.object_key("demo"), Body=content
    )


def put_record(
    node: Node, *, environment: str = RECIPE.key, sha256: str, others: Mapping[str, dict[str, Any]] | None = None
) -> None:
    item: dict[str, Any] = {
        TABLE_KEY: {"S": ENGINES_RECORD_ID},
        VERSION_FIELD: {"N": "2"},
        ENVIRONMENT_FIELD: {"S": environment},
        SHA256_FIELD: {"S": sha256},
    }
    node.clients.dynamodb.put_item(TableName=TABLE, Item={**item, **(others or {})})


def evil_archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        for name in ("engines", "bin/python"):
            member = tarfile.TarInfo(name)
            member.mode = 0o4755
            packed.addfile(member)
    return file.getvalue()


def test_a_worker_unpacks_nothing_that_the_master_has_not_vouched_for(
    node: Callable[[str], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bootstrap.frameworks.archive.unpack", lambda *_: pytest.fail("unpacked"))
    node("master").provide(is_master=True)
    worker = node("worker")
    put_archive(worker, evil_archive())
    with pytest.raises(
        FrameworkError, match=r"^SHA-256 of engines/demo/horovod-.* must be [0-9a-f]{64}, got "
    ) as failure:
        worker.provide(is_master=False)
    assert failure.value.short == "wrong hash"
    assert not list(place(worker.root, RECIPE.directory).parent.iterdir())
    assert worker.paused == sorted(worker.paused)


def test_without_a_record_a_worker_does_not_believe_the_bucket(node: Callable[[str], Node]) -> None:
    worker = node("worker")
    put_archive(worker, evil_archive())
    with pytest.raises(FrameworkError, match="was not in the bucket in time"):
        worker.provide(is_master=False)
    assert not worker.programs.exists()


def test_clusters_that_share_a_bucket_have_an_archive_each() -> None:
    assert RECIPE.object_key("one") != RECIPE.object_key("two")
    assert RECIPE.object_key("one").startswith(ENGINES_PREFIX)


def test_the_service_asks_for_its_own_clusters_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    monkeypatch.setattr(service, "connect", lambda _region: SimpleNamespace(s3=None))
    monkeypatch.setattr(service, "Archive", lambda _s3, *, bucket, key: asked.append(f"{bucket}/{key}"))
    for name in ("one", "two"):
        service._services(node_config(cluster_name=name, bucket="shared"), tmp_path).archive(RECIPE)
    assert asked == [f"shared/{RECIPE.object_key(name)}" for name in ("one", "two")]


def test_a_new_master_makes_anew_what_somebody_has_replaced(node: Callable[[str], Node]) -> None:
    node("first").provide(is_master=True)
    second, worker = node("second"), node("worker")
    put_archive(second, evil_archive())
    second.provide(is_master=True)
    worker.provide(is_master=False)
    assert (second.builds, worker.builds) == (1, 0)
    assert (worker.programs / "mpirun").read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("sha256", ["", "x" * 64, "A" * 64, "0" * 65, "0" * 63 + "\n", "0" * 100_000])
def test_a_record_that_is_no_hash_is_refused_and_replaced(node: Callable[[str], Node], sha256: str) -> None:
    worker = node("worker")
    put_record(worker, sha256=sha256)
    with pytest.raises(FrameworkError, match="must be 64 hex digits, got ") as failure:
        worker.provide(is_master=False)
    assert failure.value.short == "bad record"
    assert len(str(failure.value)) < 200
    node("master").provide(is_master=True)
    node("another").provide(is_master=False)


@pytest.mark.parametrize(
    "forged",
    [
        {SHA256_FIELD: {"L": [{"S": "0" * 64}]}},
        {SHA256_FIELD: {"N": "0"}},
        {ENVIRONMENT_FIELD: {"M": {}}},
        {VERSION_FIELD: {"N": "0"}},
        {VERSION_FIELD: {"S": "2\n"}},
    ],
    ids=str,
)
def test_a_record_of_another_form_is_refused_and_replaced(
    node: Callable[[str], Node], forged: dict[str, dict[str, Any]]
) -> None:
    worker = node("worker")
    put_record(worker, sha256="0" * 64, others=forged)
    with pytest.raises(FrameworkError, match=r"^record engines: .* must be ") as failure:
        worker.provide(is_master=False)
    assert failure.value.short == "bad record"
    assert str(failure.value).isprintable()
    node("master").provide(is_master=True)
    node("another").provide(is_master=False)


def test_the_record_of_another_environment_is_none(node: Callable[[str], Node]) -> None:
    master = node("master")
    put_record(master, environment="horovod-py3.10", sha256="0" * 64)
    master.provide(is_master=True)
    assert master.builds == 1


def test_a_build_that_fails_is_tried_again_and_says_why(node: Callable[[str], Node]) -> None:
    master = node("master")
    master.failures = [FrameworkError("pip install failed", "no route"), FrameworkError("import mxnet failed", "no")]
    master.provide(is_master=True)
    assert master.builds == 3
    assert master.why == [None, "try 1: pip install failed", "try 2: import mxnet failed"]
    first, second = master.paused
    assert 5.0 < first < second


def test_a_build_is_given_up_at_the_deadline_with_its_last_failure(node: Callable[[str], Node]) -> None:
    master = node("master")
    master.failures = [FrameworkError("pip install failed", "no route")] * 100
    with pytest.raises(FrameworkError, match=r"^no route \(try [345]\)$") as failure:
        master.provide(is_master=True)
    assert failure.value.short == "pip install failed"
    assert master.clock.now <= 1060.0


def test_a_build_that_can_only_fail_is_not_tried_again(node: Callable[[str], Node]) -> None:
    master = node("master")
    master.failures = [FrameworkError("no C++ compiler", "to compile takes c++", lasting=True)]
    with pytest.raises(FrameworkError, match=r"^to compile takes c\+\+ \(try 1\)$"):
        master.provide(is_master=True)
    assert not master.paused


def test_the_agent_is_told_which_try_it_is(tmp_path: Path) -> None:
    write_state(tmp_path, State(doing="building", why="try 1: pip install failed"))
    frameworks = Frameworks(tmp_path, name="mxnet")
    assert not frameworks.ready()
    assert frameworks.waiting == "engines: building (try 1: pip install failed)"
