"""Attack from a node: ``python3 forge_records.py GO SECONDS MARKER FORM`` forges records and prints how many.

It writes what the node's role may write: on the master the membership and its generation, on every node its own record.
FORM is malformed or well-formed: well-formed records pass the validator, but their contents are wrong. Then it tries
the other nodes' records too, which must be refused.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

RELEASE = Path("/opt/deeplearning/current")
sys.path[0:0] = [str(RELEASE), str(RELEASE / "vendor")]

import boto3  # noqa: E402  (the agent's own boto3)
from botocore.exceptions import ClientError  # noqa: E402

CONFIG = json.loads(Path("/etc/deeplearning/node.json").read_text())
STATE = json.loads(Path("/run/deeplearning/node.json").read_text())
LONGER_S = 120.0
"""Time that a busy machine gets beyond SECONDS."""
GO, SECONDS, MARKER, FORM = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
IS_MASTER = CONFIG["node_type"] == "master"
MEMBERSHIP, GENERATION = "membership", "generation"
COMMAND = f"x'$(touch {MARKER})'"
LINES = f"2\nHost *\n  ProxyCommand touch {MARKER}\n"
MEMBERS = STATE["members"]
KEY = MEMBERS[0]["host_key"]
FOREIGN_KEY = next(row["host_key"] for row in MEMBERS if row["instance_id"] != STATE["instance_id"])
FREE_ADDRESS = MEMBERS[0]["address"].rpartition(".")[0] + ".250"


def membership(**attributes: Any) -> dict[str, Any]:
    item = {
        "id": {"S": MEMBERSHIP},
        "version": {"N": "2"},
        "generation": {"N": str(int(time.time()))},
        "desired_nodes": {"N": str(len(STATE["members"]))},
        "members": {"S": json.dumps(STATE["members"])},
    }
    return {**item, **attributes}


def worker(**forged: Any) -> dict[str, Any]:
    """Build a membership with a forged worker2."""
    rows = [{**row, **forged} if row["node_index"] == 2 else row for row in STATE["members"]]
    return membership(members={"S": json.dumps(rows)})


def generation(value: Any) -> dict[str, Any]:
    return {"id": {"S": GENERATION}, "version": {"N": "2"}, "generation": value}


def own_record(**attributes: Any) -> dict[str, Any]:
    role = CONFIG["master_role_id" if IS_MASTER else "worker_role_id"]
    item = {
        "id": {"S": f"{role}:{STATE['instance_id']}"},
        "version": {"N": "2"},
        "instance_id": {"S": STATE["instance_id"]},
        "node_type": {"S": CONFIG["node_type"]},
        "host_key": {"S": KEY},
    }
    return {**item, **attributes}


def others() -> list[dict[str, Any]]:
    """Build a record for every other node, with a valid key."""
    rows = [row for row in MEMBERS if row["instance_id"] != STATE["instance_id"]]
    return [
        own_record(
            id={"S": f"{CONFIG[row['node_type'] + '_role_id']}:{row['instance_id']}"}, host_key={"S": FOREIGN_KEY}
        )
        for row in rows
    ]


def swapped() -> dict[str, Any]:
    """Build a membership in which the two workers have swapped places."""
    index = {1: 1, 2: 3, 3: 2}
    return membership(members={"S": json.dumps([{**row, "node_index": index[row["node_index"]]} for row in MEMBERS])})


OWN = [
    own_record(host_key={"S": f"ssh-ed25519 {'A' * 300_000}"}),
    own_record(host_key={"S": f"{KEY}\n@cert-authority * {KEY}"}),
    own_record(host_key={"S": COMMAND}),
    own_record(host_key={"N": "1"}),
    own_record(host_key={"S": KEY}, more={"S": "x" * 300_000}, version={"N": "0"}),
    own_record(ssh_key={"S": f'{KEY}\nfrom="*" {KEY}'}, host_key={"S": ""}),
    own_record(draining={"S": "true"}),
    own_record(instance_id={"S": COMMAND}),
    own_record(node_type={"S": "root"}),
    {"id": own_record()["id"]},
]
FORGED = [
    worker(address=COMMAND),
    worker(address=LINES),
    worker(address="203.0.113.9"),
    worker(address="%h"),
    worker(node_index=LINES),
    worker(node_index=True),
    worker(node_index=1),
    worker(instance_id=f"i-{COMMAND}"),
    worker(node_type="master"),
    worker(host_key=f"{KEY}\n* {KEY}"),
    worker(host_key="ssh-ed25519 " + "A" * 68),
    worker(ssh_key=f'{KEY}\ncommand="touch {MARKER}" {KEY}'),
    worker(draining="no"),
    membership(members={"S": "[" * 50_000}),
    membership(members={"S": '[{"node_index": ' + "9" * 100_000 + "}]"}),
    membership(generation={"S": "x" * 100_000}),
    membership(version={"N": "0"}),
    {"id": {"S": MEMBERSHIP}},
    generation({"S": COMMAND}),
    generation({"N": "-1"}),
]
WELL_FORMED_OWN = [
    own_record(draining={"BOOL": True}, host_key={"S": FOREIGN_KEY}),
    own_record(draining={"BOOL": True}, address={"S": FREE_ADDRESS}, host_key={"S": FOREIGN_KEY}),
]
WELL_FORMED = [
    worker(address=FREE_ADDRESS),
    worker(host_key=FOREIGN_KEY),
    worker(draining=True),
    swapped(),
    membership(desired_nodes={"N": "1"}, members={"S": json.dumps(MEMBERS[:1])}),
    generation({"N": "77"}),
]


def is_refused(client: Any, item: dict[str, Any]) -> bool:
    try:
        client.put_item(TableName=CONFIG["table"], Item=item)
    except ClientError as error:
        return bool(error.response["Error"]["Code"] == "AccessDeniedException")
    return False


def main() -> None:
    # Marks these calls as a test's for tests/e2e/after_all_tests.
    os.environ["AWS_SDK_UA_APP_ID"] = "abuse"
    client = boto3.client("dynamodb", region_name=CONFIG["region"])
    print("ready", flush=True)
    while not GO.exists():
        time.sleep(0.1)
    shared, of_its_own = (WELL_FORMED, WELL_FORMED_OWN) if FORM == "well-formed" else (FORGED, OWN)
    kinds, written, end = shared + of_its_own if IS_MASTER else of_its_own, 0, time.time() + SECONDS
    # A busy machine does not write each of them every second, and then goes on for longer.
    while time.time() < end or (time.time() < end + LONGER_S and written < SECONDS * len(kinds) / 4):
        second = time.monotonic() + 1.0
        for item in kinds:
            client.put_item(TableName=CONFIG["table"], Item=item)
            written += 1
            if FORM == "well-formed":  # each of them is in the table for a while
                time.sleep(0.9 / len(kinds))
        time.sleep(max(0.0, second - time.monotonic()))
    assert all(is_refused(client, item) for item in others()), "wrote another node's record"
    print(len(kinds), written)


main()
