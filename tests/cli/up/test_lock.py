"""Test the lock of ``dlcluster up``: a run that was overtaken never becomes the holder again, nor ends any nodes."""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from bootstrap.aws.group_sizes import PAUSED
from bootstrap.contract import MASTER, WORKER
from cli.cluster_lock import LEASE_S, Lock, LockHeldError
from cli.errors import ClusterError
from cli.node_groups.groups import GroupState
from cli.up import requirements, terminate_fleet
from cli.up.fleet import Fleet, ZoneOutcome
from cli.up.zone_search import ZoneSearch
from stacks.settings.nodes import declared_sizes

DECLARED = declared_sizes(worker_count=2, needed_workers=2)
ZONE = "us-east-1a"


class RefusedError(Exception):
    """The condition of a write did not hold."""


@dataclass(kw_only=True)
class Table:
    """Keeps the record, and checks the condition of each write, as DynamoDB does."""

    exceptions: Any = field(default_factory=lambda: SimpleNamespace(ConditionalCheckFailedException=RefusedError))
    item: dict[str, Any] = field(default_factory=dict)
    looked_up: int = 0

    def get_item(self, **_: Any) -> dict[str, Any]:
        return {"Item": self.item} if self.item else {}

    def put_item(self, *, Item: dict[str, Any], **condition: Any) -> None:  # noqa: N803
        self._check(condition)
        self.item = Item

    def delete_item(self, **condition: Any) -> None:
        self._check(condition)
        self.item = {}

    def _check(self, condition: dict[str, Any]) -> None:
        if self.item and self.item["revision"] != condition["ExpressionAttributeValues"][":read"]:
            raise RefusedError

    def lock(self, pid: int = 17) -> Lock:
        clients: Any = SimpleNamespace(dynamodb=self, cloudformation=None, region="us-east-1", autoscaling=None)
        return Lock(clients=clients, name="demo", caller="ann", pid=pid)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    made = Table()

    def find(*_: Any, **__: Any) -> Any:
        made.looked_up += 1
        return SimpleNamespace(table="demo-Table")

    monkeypatch.setattr("cli.cluster_lock.find_cluster", find)
    return made


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    later = time.time() + seconds
    monkeypatch.setattr("cli.cluster_lock.time.time", lambda: later)


def test_call_that_slept_too_long_cannot_take_its_lock_back(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    asleep, other = table.lock(), table.lock()
    asleep.acquire_or_renew()
    pass_time(monkeypatch, LEASE_S + 1)
    other.acquire_or_renew()
    with pytest.raises(LockHeldError, match="ann is running dlcluster up for demo"):
        asleep.acquire_or_renew()
    other.release()
    with pytest.raises(LockHeldError, match="has taken over"):
        asleep.acquire_or_renew()
    assert table.item == {}


def test_stale_lock_of_another_call_is_not_taken_back(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    asleep, other = table.lock(), table.lock()
    asleep.acquire_or_renew()
    pass_time(monkeypatch, LEASE_S + 1)
    other.acquire_or_renew()
    pass_time(monkeypatch, 2 * LEASE_S + 2)
    with pytest.raises(LockHeldError, match="has taken over"):
        asleep.acquire_or_renew()


def test_owner_keeps_an_uncontested_lock(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = table.lock()
    holder.acquire_or_renew()
    pass_time(monkeypatch, LEASE_S + 1)
    holder.acquire_or_renew()
    holder.release()
    assert (table.item, table.looked_up) == ({}, 1)


def test_equal_pid_and_hostname_do_not_own_the_lock(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.cluster_lock._boot", lambda: "")
    table.lock().acquire_or_renew()
    with pytest.raises(LockHeldError):
        table.lock().acquire_or_renew()


def test_lock_is_kept_when_the_hostname_changes(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = table.lock()
    holder.acquire_or_renew()
    monkeypatch.setattr("cli.cluster_lock.socket.gethostname", lambda: "another")
    holder.acquire_or_renew()
    assert table.item["host"] == {"S": "another"}


@pytest.mark.parametrize("boot", ["same", "other", "unknown"])
def test_lock_of_an_ended_process_is_free_on_the_same_boot(
    table: Table, boot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot_id, namespace = tmp_path / "boot_id", tmp_path / "pid"
    namespace.symlink_to("pid:[4026531836]")
    monkeypatch.setattr("cli.cluster_lock.BOOT_ID", boot_id)
    monkeypatch.setattr("cli.cluster_lock.PROCESS_NAMESPACE", namespace)
    if boot != "unknown":
        boot_id.write_text("f3d1\n")
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as gone:
        table.lock(gone.pid).acquire_or_renew()
        with pytest.raises(LockHeldError):
            table.lock().acquire_or_renew()  # it has not been waited for, so it is still there
    if boot == "other":
        boot_id.write_text("0815\n")
    if boot == "same":
        table.lock().acquire_or_renew()
        namespace.unlink()
        namespace.symlink_to("pid:[4026532000]")  # a container of the same machine
    with pytest.raises(LockHeldError):
        table.lock().acquire_or_renew()


def group(name: str, *instances: str) -> GroupState:
    size = DECLARED[MASTER if name == "demo-master" else WORKER]
    return GroupState(
        name=name, size=size, instances=dict.fromkeys(instances, "InService"), launch_zones=frozenset({ZONE})
    )


def test_nodes_without_a_recorded_attempt_are_not_ended(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {MASTER: group("demo-master", "i-0"), WORKER: group("demo-worker", "i-1", "i-2")}
    ended: list[str] = []
    monkeypatch.setattr("cli.up.fleet.read_groups", lambda *_: groups)
    monkeypatch.setattr("cli.up.fleet.terminate_fleet", lambda *_, **__: ended.append("all"))
    monkeypatch.setattr("cli.up.fleet.begin_attempt", lambda *_: pytest.fail("it began an attempt"))
    lock, cluster = table.lock(), SimpleNamespace(name="demo")
    fleet = Fleet(clients=lock.clients, cluster=cluster, declared=DECLARED, lock=lock)  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="belong to no recorded attempt"):
        fleet.start(ZONE)
    assert ended == []


def test_no_zone_is_tried_after_the_deadline_passed_in_a_pause(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    end = datetime.now(timezone.utc) + timedelta(hours=1)
    tried: list[str] = []

    def refuse(_: ZoneSearch, zone: str, **__: Any) -> ZoneOutcome:
        tried.append(zone)
        return ZoneOutcome(zone=zone, launched={}, reason="no room")

    def oversleep(_: float) -> None:
        monkeypatch.setattr(ZoneSearch, "_has_ended", lambda _, after_s=0.0: True)

    monkeypatch.setattr(ZoneSearch, "_try", refuse)
    monkeypatch.setattr("cli.up.zone_search.time.sleep", oversleep)
    deployer: Any = SimpleNamespace(lock=table.lock())
    assert len([*ZoneSearch(deployer=deployer, declared=DECLARED, zones=[ZONE], until=end).run()]) == 1
    assert tried == [ZONE]


def test_attempt_of_the_next_lock_owner_is_kept(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = GroupState(name="", size=PAUSED, instances={})
    lock, other = table.lock(), table.lock()
    lock.acquire_or_renew()

    def take(*_: Any, **__: Any) -> None:
        pass_time(monkeypatch, LEASE_S + 1)
        other.acquire_or_renew()

    monkeypatch.setattr(terminate_fleet, "read_groups", lambda *_: {MASTER: empty, WORKER: empty})
    monkeypatch.setattr(terminate_fleet, "wait_until_gone", lambda *_, **__: None)
    monkeypatch.setattr(terminate_fleet, "_wait_for_late_instances", take)
    monkeypatch.setattr("cli.up.terminate_fleet.forget_attempt", lambda *_: pytest.fail("it forgot another's attempt"))
    cluster: Any = SimpleNamespace(name="demo")
    with pytest.raises(LockHeldError):
        terminate_fleet.terminate_fleet(lock.clients, cluster, lock)


def test_lock_never_becomes_stale_while_a_fleet_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wait of terminate_fleet takes as long as its deadline allows."""
    clock, held, late_since = [0.0], [0.0], list[float]()

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def pause(*_: Any) -> None:
        if clock[0] < terminate_fleet.CHANGE_TIMEOUT_S:
            raise ClientError({"Error": {"Code": "ResourceContention", "Message": ""}}, "UpdateAutoScalingGroup")

    def running(*_: Any) -> list[str]:
        late_since.append(clock[0])
        return ["i-late"] if clock[0] - late_since[0] < terminate_fleet.LATE_TIMEOUT_S else []

    monkeypatch.setattr(terminate_fleet, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    monkeypatch.setattr(
        terminate_fleet, "read_groups", lambda *_: {WORKER: group("demo-worker"), MASTER: group("demo-master")}
    )
    monkeypatch.setattr(terminate_fleet, "pause_groups", pause)
    monkeypatch.setattr(terminate_fleet, "wait_until_gone", lambda *_, timeout_s: sleep(timeout_s))
    monkeypatch.setattr(terminate_fleet, "_running", running)
    monkeypatch.setattr(terminate_fleet, "forget_attempt", lambda *_: None)
    lock: Any = SimpleNamespace(acquire_or_renew=lambda: held.append(clock[0]))
    clients: Any = SimpleNamespace(autoscaling=None)
    cluster: Any = SimpleNamespace(name="demo")
    terminate_fleet.terminate_fleet(clients, cluster, lock, may_still_launch=True)
    assert held[-1] == clock[0] > LEASE_S
    assert max(after - before for before, after in pairwise(held)) < LEASE_S


@pytest.mark.parametrize("code", ["MaxConfigLimitExceeded", "UnauthorizedOperation"])
def test_refused_spot_scores_are_reported_in_one_line(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(**_: Any) -> Any:
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, "GetSpotPlacementScores")

    ec2 = SimpleNamespace(
        describe_availability_zones=lambda **_: {"AvailabilityZones": []},
        get_paginator=lambda _: SimpleNamespace(paginate=refuse),
    )
    clients: Any = SimpleNamespace(ec2=ec2, region="us-east-1")
    props: Any = SimpleNamespace(zones=(ZONE,), instance_type="c5.large", worker_count=2)
    assert requirements.spot_scores(clients, props) is None
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"zones keep their order: AWS refused GetSpotPlacementScores: {code}: no" in told
