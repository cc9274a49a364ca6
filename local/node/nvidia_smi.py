#!/usr/bin/python3
"""Run a simulated nvidia-smi: list the GPUs of the node's instance type, which cannot compute anything.

Nodes of the local AWS with such a type have it as /usr/bin/nvidia-smi.

    nvidia-smi -L
    nvidia-smi --query-gpu=index,name,uuid --format=csv[,noheader]
    nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name --format=csv[,noheader]    (always empty)

If /run/local-aws/gpus contains a smaller number, only that many GPUs are listed: the others have fallen off the bus.
"""

import argparse
import sys
from pathlib import Path

GPU_LIST_FILE = "usr/share/local-aws/gpus"
"""File with the type's GPUs, one line per GPU: its name and its UUID, separated by a tab."""
VISIBLE_COUNT_FILE = "run/local-aws/gpus"
"""File with the number of GPUs to list; without it all are listed."""
NO_DEVICES, INVALID = 6, 2
"""Exit codes of the real nvidia-smi ("RETURN VALUE" in its manual)."""


def read_gpus(root: Path) -> list[dict[str, str]]:
    """Return the queryable fields of every GPU to list."""
    rows = [line.split("\t") for line in (root / GPU_LIST_FILE).read_text().splitlines()]
    count_file = root / VISIBLE_COUNT_FILE
    if count_file.exists():
        rows = rows[: int(count_file.read_text())]
    return [
        {"index": str(index), "name": name, "uuid": uuid, "count": str(len(rows))}
        for index, (name, uuid) in enumerate(rows)
    ]


def query(gpus: list[dict[str, str]], fields: list[str], *, header: bool) -> list[str]:
    lines = [", ".join(gpu[field] for field in fields) for gpu in gpus]
    return [", ".join(fields), *lines] if header else lines


def main(arguments: list[str] | None = None, root: Path = Path("/")) -> int:
    parser = argparse.ArgumentParser(
        prog="nvidia-smi", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    queries = parser.add_mutually_exclusive_group(required=True)
    queries.add_argument("-L", "--list-gpus", action="store_true")
    queries.add_argument("--query-gpu", metavar="FIELDS", type=lambda text: text.replace(" ", "").split(","))
    queries.add_argument("--query-compute-apps", metavar="FIELDS", type=lambda text: text.replace(" ", "").split(","))
    parser.add_argument("--format", default="", type=lambda text: text.replace(" ", "").split(","))
    options = parser.parse_args(arguments)
    gpus = read_gpus(root)
    if not gpus:
        print("No devices were found")
        return NO_DEVICES
    if options.list_gpus:
        print("\n".join(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})" for gpu in gpus))
        return 0
    if "csv" not in options.format:
        print("error: the simulated nvidia-smi answers queries with --format=csv only", file=sys.stderr)
        return INVALID
    if options.query_compute_apps:
        print("" if "noheader" in options.format else ", ".join(options.query_compute_apps) + "\n", end="")
        return 0
    for field in options.query_gpu:
        if field not in gpus[0]:
            print(f'Field "{field}" is not a valid field to query.')
            return INVALID
    print("\n".join(query(gpus, options.query_gpu, header="noheader" not in options.format)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
