"""The machine before and after a test: a local AWS must leave nothing on it."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.cache import cache_dir
from local.runs import runs_dir
from local.sandbox import cgroup_root

REPOSITORY = Path(__file__).parents[2]


def machine() -> dict[str, object]:
    """What a run could leave behind, as far as other users of the machine do not change it meanwhile."""
    own_network = Path("/proc/self/ns/net").readlink()
    strangers = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = process.joinpath("cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            if (process / "ns/net").readlink() != own_network or "-m local." in command:
                strangers.append(command)
        except OSError:
            continue  # it ended meanwhile
    return {
        "processes": strangers,
        "mounts": Path("/proc/mounts").read_text().splitlines(),
        "cgroups": sorted(p.name for p in cgroup_root().glob("deeplearning-cdk-*")),
        "runs": sorted(p.name for p in runs_dir().glob("*")),
        "namespaces": sorted(p.name for p in Path("/run/netns").glob("*")),
        "links": sorted(link["ifname"] for link in json.loads(subprocess.check_output(["ip", "-json", "link"]))),
        "firewall": subprocess.check_output(["nft", "list", "ruleset"], text=True),
        "sysctl": {
            name: Path("/proc/sys", name).read_text()
            for name in ("fs/inotify/max_user_instances", "net/ipv4/ip_forward", "kernel/pid_max")
        },
        "files": sorted(str(p) for d in ("/run", "/var/lib", "/etc", REPOSITORY) for p in Path(d).iterdir()),
        "temporary": sorted(p.name for p in Path("/tmp").iterdir() if re.match("cdk|jsii|aws|deeplearning", p.name)),
        "home": sorted(str(p) for p in Path.home().iterdir()),
    }


def settled(before: dict[str, object]) -> dict[str, object]:
    """The machine once it is as before, or as it is at the deadline."""
    deadline = time.monotonic() + 30
    while (now := machine()) != before and time.monotonic() < deadline:
        time.sleep(0.2)
    return now


@pytest.fixture
def clean_machine() -> Iterator[dict[str, object]]:
    cache_dir().mkdir(parents=True, exist_ok=True)
    runs_dir().mkdir(exist_ok=True)
    before = machine()
    yield before
    after = settled(before)
    assert {name: after[name] for name in before if after[name] != before[name]} == {}
