import pytest

from cli.nodes import Member, choose_node

MEMBERS = tuple(
    Member(
        slot=slot,
        instance_id=f"i-{slot:017x}",
        address=f"10.0.0.{slot}",
        node_type="master" if slot == 1 else "worker",
        host_key="ssh-ed25519 A",
    )
    for slot in (1, 2, 12)
)


@pytest.mark.parametrize(
    ("name", "slot"),
    [
        ("master", 1),
        ("deeplearning-master", 1),
        ("demo-master", 1),
        ("1", 1),
        ("worker1", 1),
        ("deeplearning-worker1", 1),
        ("worker2", 2),
        ("2", 2),
        ("deeplearning-worker12", 12),
        ("demo-worker12", 12),
        ("i-0000000000000000c", 12),
    ],
)
def test_a_node_has_many_names(name: str, slot: int) -> None:
    assert choose_node(name, MEMBERS, cluster_name="demo").slot == slot
