"""Check that a node trusts only the archive whose hash the master has recorded."""

import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.contract import (
    MXNET_ARCHIVES_PREFIX,
    MXNET_ENVIRONMENT_FIELD,
    MXNET_ENVIRONMENT_RECORD_ID,
    SHA256_FIELD,
    TABLE_KEY,
    VERSION_FIELD,
)
from bootstrap.errors import MxnetEnvironmentError
from bootstrap.files.paths import under_root
from bootstrap.mxnet_environment import environment_service
from tests.bootstrap.mxnet_environment.mxnet_node import BUCKET, RECIPE, TABLE, MxnetNode
from tests.bootstrap.simulated_node import node_config

pytestmark = pytest.mark.allow_subprocess


def put_archive(node: MxnetNode, content: bytes) -> None:
    """Replace the archive, as a stolen node with access to the bucket could."""
    node.clients.s3.put_object(  # type: ignore[attr-defined]  # a client of boto3
        Bucket=BUCKET, Key=RECIPE.object_key("demo"), Body=content
    )


def put_record(
    node: MxnetNode,
    *,
    environment: str = RECIPE.key,
    sha256: str,
    others: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    item: dict[str, Any] = {
        TABLE_KEY: {"S": MXNET_ENVIRONMENT_RECORD_ID},
        VERSION_FIELD: {"N": "2"},
        MXNET_ENVIRONMENT_FIELD: {"S": environment},
        SHA256_FIELD: {"S": sha256},
    }
    node.clients.dynamodb.put_item(TableName=TABLE, Item={**item, **(others or {})})


def evil_archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        for name in ("frameworks", "bin/python"):
            member = tarfile.TarInfo(name)
            member.mode = 0o4755
            packed.addfile(member)
    return file.getvalue()


def test_worker_unpacks_only_archives_signed_off_by_the_master(
    node: Callable[[str], MxnetNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bootstrap.mxnet_environment.archive.unpack", lambda *_: pytest.fail("unpacked"))
    node("master").install_environment(is_master=True)
    worker = node("worker")
    put_archive(worker, evil_archive())
    with pytest.raises(
        MxnetEnvironmentError, match=r"^SHA-256 of mxnet/demo/horovod-.* must be [0-9a-f]{64}, got "
    ) as failure:
        worker.install_environment(is_master=False)
    assert failure.value.short == "wrong hash"
    assert not list(under_root(worker.root, RECIPE.directory).parent.iterdir())
    assert len(worker.paused) > 1, "the master may replace the archive meanwhile"
    assert worker.paused == sorted(worker.paused)


def test_without_a_record_a_worker_does_not_believe_the_bucket(node: Callable[[str], MxnetNode]) -> None:
    worker = node("worker")
    put_archive(worker, evil_archive())
    with pytest.raises(MxnetEnvironmentError, match="was not in the bucket in time"):
        worker.install_environment(is_master=False)
    assert not worker.programs.exists()


def test_clusters_that_share_a_bucket_have_an_archive_each() -> None:
    assert RECIPE.object_key("one") != RECIPE.object_key("two")
    assert RECIPE.object_key("one").startswith(MXNET_ARCHIVES_PREFIX)


def test_service_requests_the_archive_of_its_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    monkeypatch.setattr(environment_service, "connect", lambda _region: SimpleNamespace(s3=None))
    monkeypatch.setattr(environment_service, "Archive", lambda _s3, *, bucket, key: asked.append(f"{bucket}/{key}"))
    for name in ("one", "two"):
        config = node_config(cluster_name=name, bucket="shared")
        environment_service._create_dependencies(config, tmp_path).archive(RECIPE)
    assert asked == [f"shared/{RECIPE.object_key(name)}" for name in ("one", "two")]


def test_new_master_rebuilds_a_replaced_archive(node: Callable[[str], MxnetNode]) -> None:
    node("first").install_environment(is_master=True)
    second, worker = node("second"), node("worker")
    put_archive(second, evil_archive())
    second.install_environment(is_master=True)
    worker.install_environment(is_master=False)
    assert (second.builds, worker.builds) == (1, 0)
    assert (worker.programs / "mpirun").read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("sha256", ["", "x" * 64, "A" * 64, "0" * 65, "0" * 63 + "\n", "0" * 100_000])
def test_record_without_a_valid_hash_is_refused_and_replaced(node: Callable[[str], MxnetNode], sha256: str) -> None:
    worker = node("worker")
    put_record(worker, sha256=sha256)
    with pytest.raises(MxnetEnvironmentError, match="must be 64 hex digits, got ") as failure:
        worker.install_environment(is_master=False)
    assert failure.value.short == "bad record"
    assert len(str(failure.value)) < 200
    master, another = node("master"), node("another")
    master.install_environment(is_master=True)
    another.install_environment(is_master=False)
    assert (master.builds, another.builds) == (1, 0)
    assert another.programs.is_dir()


@pytest.mark.parametrize(
    "forged",
    [
        {SHA256_FIELD: {"L": [{"S": "0" * 64}]}},
        {SHA256_FIELD: {"N": "0"}},
        {MXNET_ENVIRONMENT_FIELD: {"M": {}}},
        {VERSION_FIELD: {"N": "0"}},
        {VERSION_FIELD: {"S": "2\n"}},
    ],
    ids=str,
)
def test_record_with_invalid_fields_is_refused_and_replaced(
    node: Callable[[str], MxnetNode], forged: dict[str, dict[str, Any]]
) -> None:
    worker = node("worker")
    put_record(worker, sha256="0" * 64, others=forged)
    with pytest.raises(MxnetEnvironmentError, match=r"^record mxnet: .* must be ") as failure:
        worker.install_environment(is_master=False)
    assert failure.value.short == "bad record"
    assert str(failure.value).isprintable()
    master, another = node("master"), node("another")
    master.install_environment(is_master=True)
    another.install_environment(is_master=False)
    assert (master.builds, another.builds) == (1, 0)
    assert another.programs.is_dir()


def test_master_ignores_the_hash_of_another_environment(node: Callable[[str], MxnetNode]) -> None:
    master = node("master")
    put_record(master, environment="horovod-py3.10", sha256="0" * 64)
    master.install_environment(is_master=True)
    assert master.builds == 1
