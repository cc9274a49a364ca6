"""Test addresses that may log in: what reaches the list, what is removed from it, and what is refused."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError

from bootstrap.contract import ALLOW_LIST_SIZE
from cli.aws.allow_list import CHANGE_TIMEOUT_S, AllowedBlock, AllowList
from cli.aws.clients import create_clients
from cli.aws.clusters import find_cluster
from cli.errors import EXIT_FAILED, EXIT_USAGE, ClusterError
from cli.main import main
from cli.ssh.expired_addresses import remove_expired_addresses
from local.network import check_ip
from stacks.settings.parsing import format_utc
from tests.cli.moto_cluster import error_line, put_members
from tests.local.control_plane.harness import REGION, Aws, Stacks, serving
from tests.local.control_plane.templates import attribute, reference, resource

OFFICE, HOME = "203.0.113.0/24", "198.51.100.9/32"


@pytest.fixture(scope="module")
def local_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with serving(tmp_path_factory.mktemp("aws") / "requests.jsonl") as aws:
        yield aws


@pytest.fixture
def stacks(local_aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stacks]:
    """Return a stack with an allow list, as dlcluster sees it."""
    variables = {"AWS_ENDPOINT_URL": local_aws.url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for name, value in {**variables, "AWS_REGION": REGION, "AWS_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    made = Stacks(aws=local_aws)
    made.create(template(ClusterAllowList=attribute("PrefixListId", "Allowed")), name="demo")
    yield made
    made.cloudformation.delete_stack(StackName="demo")


def template(**outputs: Any) -> dict[str, Any]:
    name = {"AttributeName": "id", "AttributeType": "S"}
    table = resource(
        "DynamoDB::Table",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[name],
    )
    size: dict[str, Any] = {"PrefixListName": "demo-allowed", "AddressFamily": "IPv4", "MaxEntries": ALLOW_LIST_SIZE}
    found = {"ClusterName": "demo", "ClusterTable": reference("Table"), "LoginUser": "ubuntu", **outputs}
    return {
        "Resources": {"Table": table, "Allowed": resource("EC2::PrefixList", **size)},
        "Outputs": {key: {"Value": value} for key, value in found.items()},
    }


def entries(stacks: Stacks) -> dict[str, str]:
    ec2 = stacks.aws.client("ec2")
    found = ec2.get_managed_prefix_list_entries(PrefixListId=stacks.physical_id("Allowed", "demo"))["Entries"]
    return {entry["Cidr"]: entry.get("Description", "") for entry in found}


def allow_list(stacks: Stacks) -> AllowList:
    return AllowList(stacks.aws.client("ec2"), stacks.physical_id("Allowed", "demo"), sleep=lambda _: None)


def test_address_is_added_listed_and_removed(stacks: Stacks, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["allow-ip"]) == 0
    assert "no address on the list of demo" in capsys.readouterr().err
    for _ in range(2):  # the second call changes nothing
        assert main(["allow-ip", OFFICE]) == 0
        assert capsys.readouterr() == (f"CIDR            UNTIL\n{OFFICE}  -\n", "")
    assert main(["allow-ip", "--remove", OFFICE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 1, "cluster": "demo", "addresses": [], "changed": True}
    assert entries(stacks) == {}
    assert main(["allow-ip", "--remove", OFFICE]) == EXIT_FAILED
    assert error_line(capsys) == f"{OFFICE} is not on the list of demo, which dlcluster allow-ip shows"


def test_end_of_an_address_is_stored_and_can_be_changed(stacks: Stacks, capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(timezone.utc)
    for words, more in ((["--for", "8h"], 8), (["--for", "2d"], 48), ([], None)):
        assert main(["allow-ip", HOME, *words, "--json"]) == 0
        [found] = json.loads(capsys.readouterr().out)["addresses"]
        if more is None:
            assert (found["until"], entries(stacks)) == (None, {HOME: "dlcluster allow-ip"})
        else:
            assert entries(stacks) == {HOME: f"until {found['until']}"}
            until = datetime.fromisoformat(found["until"].replace("Z", "+00:00"))
            assert abs(until - now - timedelta(hours=more)) < timedelta(minutes=1)


@pytest.mark.parametrize("command", ["allow-ip", "status", "ssh"])
def test_address_whose_time_has_passed_is_removed_and_named(
    command: str, stacks: Stacks, capsys: pytest.CaptureFixture[str]
) -> None:
    past = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    allow_list(stacks).add(AllowedBlock(cidr=HOME, until=past))
    allow_list(stacks).add(AllowedBlock(cidr=OFFICE, until=datetime.now(timezone.utc) + timedelta(hours=1)))
    outputs = {"ClusterAllowList": attribute("PrefixListId", "Allowed"), "ClusterNetworks": "10.0.0.0/16"}
    stacks.update(template(**outputs), "demo")
    put_members(stacks.physical_id("Table", "demo"), [], region=REGION)
    main([command])  # status and ssh then fail, because this cluster has no nodes
    assert f"dlcluster: removed {HOME}, whose time ended at {format_utc(past)}\n" in capsys.readouterr().err
    assert [*entries(stacks)] == [OFFICE]


def test_failed_removal_of_expired_addresses_is_only_a_warning(
    stacks: Stacks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}, "GetManagedPrefixListEntries")

    monkeypatch.setattr(AllowList, "remove_expired", refuse)
    remove_expired_addresses(create_clients(None), find_cluster(stacks.cloudformation, name="demo", region=REGION))
    sentence = "AWS refused GetManagedPrefixListEntries: UnauthorizedOperation: no"
    assert capsys.readouterr().err == f"dlcluster: cannot look for expired addresses: {sentence}\n"


def test_entry_of_another_tool_is_kept(stacks: Stacks) -> None:
    ec2 = stacks.aws.client("ec2")
    odd = [{"Cidr": OFFICE, "Description": "until 2026-02-31T12:00:00Z"}, {"Cidr": HOME}]
    ec2.modify_managed_prefix_list(PrefixListId=stacks.physical_id("Allowed", "demo"), AddEntries=odd)
    assert allow_list(stacks).entries() == (AllowedBlock(cidr=HOME), AllowedBlock(cidr=OFFICE))
    assert allow_list(stacks).remove_expired(datetime.now(timezone.utc)) == ()


def test_entries_expire_by_the_time_of_aws_not_of_this_machine(stacks: Stacks) -> None:
    now = datetime.now(timezone.utc)
    allow_list(stacks).add(AllowedBlock(cidr=HOME, until=now.replace(microsecond=0) + timedelta(hours=1)))
    assert allow_list(stacks).remove_expired(now + timedelta(days=1)) == ()
    assert [*entries(stacks)] == [HOME]


def test_colleague_may_change_the_list_meanwhile(stacks: Stacks) -> None:
    ec2, list_id = stacks.aws.client("ec2"), stacks.physical_id("Allowed", "demo")

    class Racing:
        """EC2 where a colleague is once faster."""

        is_late = True

        def __getattr__(self, name: str) -> Any:
            return getattr(ec2, name)

        def modify_managed_prefix_list(self, **request: Any) -> Any:
            if self.is_late:
                self.is_late = False
                ec2.modify_managed_prefix_list(PrefixListId=list_id, AddEntries=[{"Cidr": OFFICE}])
            return ec2.modify_managed_prefix_list(**request)

    racing: Any = Racing()
    assert AllowList(racing, list_id, sleep=lambda _: None).add(AllowedBlock(cidr=HOME))
    assert {*entries(stacks)} == {OFFICE, HOME}


def test_full_list_is_reported_with_the_command_to_remove_one(
    stacks: Stacks, capsys: pytest.CaptureFixture[str]
) -> None:
    full = [{"Cidr": f"203.0.113.{n}/32", "Description": ""} for n in range(ALLOW_LIST_SIZE)]
    stacks.aws.client("ec2").modify_managed_prefix_list(
        PrefixListId=stacks.physical_id("Allowed", "demo"), AddEntries=full
    )
    assert main(["allow-ip", HOME]) == EXIT_FAILED
    assert error_line(capsys) == "the list is full with 20 addresses: dlcluster allow-ip --remove CIDR removes one"


def test_list_that_does_not_settle_is_given_up(stacks: Stacks) -> None:
    class Stuck:
        """EC2 where a change never ends."""

        def describe_managed_prefix_lists(self, **_: Any) -> Any:
            return {"PrefixLists": [{"State": "modify-in-progress", "Version": 1}]}

        def get_managed_prefix_list_entries(self, **_: Any) -> Any:
            return {"Entries": []}

    stuck: Any = Stuck()
    now = iter(range(0, 1000, 10))
    waiting = AllowList(stuck, "pl-1", clock=lambda: next(now), sleep=lambda _: None)
    with pytest.raises(ClusterError, match=f"waited {CHANGE_TIMEOUT_S:.0f} s for changes of the list pl-1 to end"):
        waiting.add(AllowedBlock(cidr=HOME))


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"ClusterPrivate": "true"}, "demo is private: logins go through Session Manager, from any address"),
        ({}, "stack demo has no output ClusterAllowList: cdk deploy adds it"),
    ],
    ids=["private", "older"],
)
def test_cluster_without_a_list_is_reported(
    outputs: dict[str, str], message: str, stacks: Stacks, capsys: pytest.CaptureFixture[str]
) -> None:
    stacks.update(template(**outputs), name="demo")
    assert main(["allow-ip", HOME]) == EXIT_FAILED
    assert error_line(capsys) == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([HOME, "--me"], "give a CIDR or --me, not both"),
        (["--for", "8h"], "--for needs a CIDR or --me"),
        (["--remove"], "--remove needs a CIDR or --me"),
        ([HOME, "--for", "8h", "--remove"], "--for cannot be combined with --remove"),
        ([HOME, "--for", "8"], "--for must be like 90m, 8h or 2d, got '8'"),
        (["198.51.100.9"], "CIDR must be an IPv4 block, got '198.51.100.9', did you mean 198.51.100.9/32?"),
        (["0.0.0.0/0"], "CIDR must be at most as wide as /8 (ssh_location takes wider ones), got '0.0.0.0/0'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_contradictory_arguments_are_a_usage_error(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["allow-ip", *words]) == EXIT_USAGE
    assert error_line(capsys) == message


def test_option_me_adds_the_address_that_the_service_sees(
    stacks: Stacks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = check_ip.serve(("127.0.0.1", 0))
    monkeypatch.setenv("DLCLUSTER_CHECKIP_URL", f"http://127.0.0.1:{server.server_port}/")
    assert main(["allow-ip", "--me"]) == 0
    assert [*entries(stacks)] == ["127.0.0.1/32"]
    server.shutdown()
    server.server_close()
    capsys.readouterr()
    assert main(["allow-ip", "--me"]) == EXIT_FAILED
    output = error_line(capsys)
    assert output.startswith("cannot ask http://127.0.0.1:")
    assert output.endswith("give a CIDR instead")
