"""The machine before and after: a local AWS must leave nothing on it.

python -m tests.machine COMMAND...    run a command; exit 1 and say what is different when it leaves something
"""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from local.cache import cache_dir
from local.runs import runs_dir
from local.sandbox import cgroup_root
from tests.launcher.sshd import make_privilege_separation_directory

REPOSITORY = Path(__file__).parents[1]
SETTLE_S = 30.0
SYSCTLS = ("fs/inotify/max_user_instances", "net/ipv4/ip_forward", "kernel/pid_max")
Look = Mapping[str, frozenset[str]]


def look() -> Look:
    """What a run could leave behind, as far as other users of the machine do not change it meanwhile."""
    links = json.loads(subprocess.check_output(["ip", "-json", "link"]))
    return {
        "process": _processes(),
        "mount": frozenset(Path("/proc/mounts").read_text().splitlines()),
        "loop device": _disks_in_use(),
        "cgroup": _names(cgroup_root(), "deeplearning-cdk-*"),
        "run": _names(runs_dir(), "*"),
        "namespace": _names(Path("/run/netns"), "*"),
        "link": frozenset(link["ifname"] for link in links),
        "firewall rule": frozenset(subprocess.check_output(["nft", "list", "ruleset"], text=True).splitlines()),
        "sysctl": frozenset(f"{name} = {Path('/proc/sys', name).read_text().strip()}" for name in SYSCTLS),
        "file": frozenset(str(p) for d in ("/run", "/var/lib", "/etc", Path.home()) for p in Path(d).iterdir()),
        "file of the checkout": _checkout(),
        "temporary file": frozenset(n for n in _names(Path("/tmp"), "*") if re.match("cdk|jsii|aws|deeplearning", n)),
    }


def difference(before: Look, after: Look) -> list[str]:
    """One line for each thing that came or went."""
    return [
        f"{kind} {change}: {thing}"
        for kind in before
        for change, things in (("left", after[kind] - before[kind]), ("lost", before[kind] - after[kind]))
        for thing in sorted(things)
    ]


def settled_difference(before: Look) -> list[str]:
    """The difference once there is none, or as it is after half a minute."""
    deadline = time.monotonic() + SETTLE_S
    while (found := difference(before, look())) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def _names(directory: Path, pattern: str) -> frozenset[str]:
    return frozenset(path.name for path in directory.glob(pattern))


def _processes() -> frozenset[str]:
    own_network = Path("/proc/self/ns/net").readlink()
    strangers = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = process.joinpath("cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            # Another checkout's control plane is somebody else's.
            is_ours = "-m local." in command and (process / "cwd").readlink() == REPOSITORY
            if is_ours or (process / "ns/net").readlink() != own_network:
                strangers.add(f"{process.name} {command}")
        except OSError:
            continue  # it ended meanwhile
    return frozenset(strangers)


def _disks_in_use() -> frozenset[str]:
    """Files of runs that are still the disk of something; the kernel lets go of them after the last mount."""
    found = {file.read_text().strip() for file in Path("/sys/block").glob("loop*/loop/backing_file")}
    return frozenset(file for file in found if file.startswith(str(runs_dir())))


def _checkout() -> frozenset[str]:
    return frozenset(str(p) for p in REPOSITORY.rglob("*") if ".git" not in p.relative_to(REPOSITORY).parts)


def prepare() -> None:
    """Make what any use of the cache and of sshd makes, which is nobody's to clean up."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    make_privilege_separation_directory()
    runs_dir().mkdir(exist_ok=True)


def main() -> int:
    # Who is started in the background ignores Ctrl-C, and so would all that the tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    prepare()
    before = look()
    code = subprocess.run(sys.argv[1:], check=False).returncode
    found = settled_difference(before)
    for line in found:
        sys.stderr.write(f"error: the machine is not as it was, {line}\n")
    return code or bool(found)


if __name__ == "__main__":
    sys.exit(main())
