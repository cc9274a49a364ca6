"""Attack from a node: ``python3 forge_records.py GO SECONDS MARKER`` forges records and prints how many.

It writes what the node's role may write: on the master the membership and its generation, on every node its own record.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

RELEASE = Path("/opt/deeplearning/current")
sys.path[0:0] = [str(RELEASE), str(RELEASE / "vendor")]

import boto3  # noqa: E402  (the agent's own boto3)

CONFIG = json.loads(Path("/etc/deeplearning/node.json").read_text())
STATE = json.loads(Path("/run/deeplearning/node.json").read_text())
GO, SECONDS, MARKER = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
IS_MASTER = CONFIG["node_type"] == "master"
MEMBERSHIP, GENERATION = "membership", "generation"
COMMAND = f"x'$(touch {MARKER})'"
LINES = f"2\nHost *\n  ProxyCommand touch {MARKER}\n"
KEY = STATE["members"][0]["host_key"]


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


def own(**attributes: Any) -> dict[str, Any]:
    role = CONFIG["master_role_id" if IS_MASTER else "worker_role_id"]
    item = {
        "id": {"S": f"{role}:{STATE['instance_id']}"},
        "version": {"N": "2"},
        "instance_id": {"S": STATE["instance_id"]},
        "node_type": {"S": CONFIG["node_type"]},
        "host_key": {"S": KEY},
    }
    return {**item, **attributes}


OWN = [
    own(host_key={"S": f"ssh-ed25519 {'A' * 300_000}"}),
    own(host_key={"S": f"{KEY}\n@cert-authority * {KEY}"}),
    own(host_key={"S": COMMAND}),
    own(host_key={"N": "1"}),
    own(host_key={"S": KEY}, more={"S": "x" * 300_000}, version={"N": "0"}),
    own(ssh_key={"S": f'{KEY}\nfrom="*" {KEY}'}, host_key={"S": ""}),
    own(draining={"S": "true"}),
    own(instance_id={"S": COMMAND}),
    own(node_type={"S": "root"}),
    {"id": own()["id"]},
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


def main() -> None:
    client = boto3.client("dynamodb", region_name=CONFIG["region"])
    print("ready", flush=True)
    while not GO.exists():
        time.sleep(0.1)
    kinds, written, end = FORGED + OWN if IS_MASTER else OWN, 0, time.time() + SECONDS
    while time.time() < end:
        second = time.monotonic() + 1.0
        for item in kinds:
            client.put_item(TableName=CONFIG["table"], Item=item)
            written += 1
        time.sleep(max(0.0, second - time.monotonic()))
    print(len(kinds), written)


main()
