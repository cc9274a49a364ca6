"""Measure the start-up cost of ``dlcluster`` in CPU time, which every login waits for.

``dlcluster_help``: CPU seconds of ``dlcluster --help`` minus those of ``python -c pass``.
``dlcluster_known_hosts``: the command that ssh runs at each login, with the table and the networks named, compared with
a script that reads the same record of the same table with boto3 alone, as a ratio. AWS is moto on this machine. Both
run in turn, and the minimum of each counts.
Run by ``make bench B=dlcluster_start`` or ``python -m benchmarks.cluster.dlcluster_start [--rounds N]``.
"""

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from moto.server import ThreadedMotoServer

PROGRAM = Path(__file__).parents[2] / "bin" / "dlcluster"
TABLE = "cluster-table"
NETWORKS = "10.0.0.0/16"
REGION = "us-east-1"
MAKE_TABLE = f"""
import boto3
boto3.client("dynamodb").create_table(
    TableName="{TABLE}", BillingMode="PAY_PER_REQUEST", KeySchema=[dict(AttributeName="id", KeyType="HASH")],
    AttributeDefinitions=[dict(AttributeName="id", AttributeType="S")])
"""
READ_RECORD = f"""
import boto3
client = boto3.Session().client("dynamodb")
client.get_item(TableName="{TABLE}", Key=dict(id=dict(S="membership")), ConsistentRead=True)
"""


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        least = measure(environment(server.get_host_and_port()[1]), rounds=rounds)
    finally:
        server.stop()
    for name, seconds in least.items():
        print(f"{name}: {seconds:.3f} s", file=sys.stderr)
    print(f"dlcluster_help {least['help'] - least['python']:.3f} s")
    print(f"dlcluster_known_hosts {least['known-hosts'] / least['boto3']:.2f} ratio")


def environment(port: int) -> dict[str, str]:
    """Return the environment variables for the local AWS."""
    return {
        **os.environ,
        "AWS_ENDPOINT_URL": f"http://localhost:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
    }


def measure(variables: Mapping[str, str], *, rounds: int) -> dict[str, float]:
    """Return the minimum CPU seconds of each command."""
    cpu_s([sys.executable, "-c", MAKE_TABLE], variables)
    known_hosts = ["known-hosts", "--cluster", "demo", "--region", REGION, "--table", TABLE, "--networks", NETWORKS]
    commands = {
        "python": ["-c", "pass"],
        "help": [str(PROGRAM), "--help"],
        "known-hosts": [str(PROGRAM), *known_hosts, "deeplearning-master"],
        "boto3": ["-c", READ_RECORD],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):  # The first one compiles.
        for name, words in commands.items():
            times[name].append(cpu_s([sys.executable, *words], variables))
    return {name: min(found[1:]) for name, found in times.items()}


def cpu_s(command: list[str], variables: Mapping[str, str]) -> float:
    """Return the CPU seconds of a command; known-hosts fails, as the table is empty."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, env=dict(variables), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=60
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
