"""Generate forged records: valid ones with harmful values in some places."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.bootstrap.identities import instance_id, public_key

PHRASES = (
    "$(touch marker)",
    "`touch marker`",
    "x'$(touch marker)'",
    "\nHost *\n  ProxyCommand touch marker\n",
    "10.0.0.2\n* ssh-ed25519 AAAA",
    '10.0.0.2" ssh-ed25519 AAAA',
    "-oProxyCommand=touch marker",
    "%h%p%%",
    "${HOME}",
    "10.0.0.2\r",
    "10.0.0.2\x1b[2J",
    "10.0.0.2\u2028",
    "\u0661\u0660.0.0.2",  # digits, but Arabic ones
    "0x0a.0.0.2",
    "010.0.0.2",
    "10.0.0.2 ",
    "203.0.113.9",
    "fd00::2",
    "# END deeplearning-cdk",
    public_key(0) + "\n",
    public_key(0) + " comment",
    'from="10.0.0.1" ' + public_key(0),
    "",
)
TEXTS = st.one_of(st.sampled_from(PHRASES), st.text(max_size=30))
VALUES = st.one_of(
    TEXTS,
    st.integers(),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.lists(TEXTS, max_size=2),
    st.dictionaries(TEXTS, TEXTS, max_size=2),
)
FIELDS = ("node_index", "instance_id", "address", "node_type", "host_key", "ssh_key", "draining")


def row(index: int) -> dict[str, Any]:
    return {
        "node_index": index,
        "instance_id": instance_id(index),
        "address": f"10.0.{index // 256}.{index % 256}",
        "node_type": "master" if index == 1 else "worker",
        "host_key": public_key(index),
        "ssh_key": public_key("cluster") if index == 1 else "",
        "draining": False,
    }


@st.composite
def forged_rows(draw: st.DrawFn) -> list[Any]:
    """Draw members, most of them valid."""
    rows: list[Any] = [row(index) for index in draw(st.lists(st.integers(1, 1001), max_size=5))]
    if draw(st.booleans()):
        rows = [row(index) for index in range(1, len(rows) + 1)]
    for member in rows:
        for name in draw(st.lists(st.sampled_from(FIELDS), max_size=1)):
            member[name] = draw(st.one_of(VALUES, st.just(member[name]), st.just(row(2)[name])))
        member.update(
            draw(st.dictionaries(st.text(max_size=5).filter(lambda key: key not in FIELDS), VALUES, max_size=1))
        )
    return rows


@st.composite
def forged_items(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the membership's item as DynamoDB would return it."""
    number = st.one_of(st.just("3"), st.integers(-2, 10**17).map(str))
    members = draw(st.one_of(forged_rows().map(json.dumps), forged_rows().map(json.dumps), TEXTS))
    item: dict[str, Any] = {
        "id": {"S": "membership"},
        "version": {"N": draw(st.sampled_from(["2", "2", "2", "3", "1"]))},
        "generation": {"N": draw(number)},
        "desired_nodes": {"N": draw(number)},
        "members": {"S": members},
    }
    for name in draw(st.lists(st.sampled_from(sorted(item)), max_size=1)):
        others: list[dict[str, Any]] = [{"S": "7"}, {"N": "1"}, {"BOOL": True}, {"M": {}}, {"L": [{"S": "x"}]}]
        item[name] = draw(st.sampled_from([item[name], *others]))
    return item
