"""Check for leaks: compare the machine before and after a command, because a local AWS must leave nothing on it.

python -m tests.leak_check COMMAND...    run a command; if it leaves something, print the difference and exit 1

Other programs use the machine at the same time, so compare only what is certainly the command's own. Names of its runs
start with the command's mark, and so do the names of everything that they create (cgroups, mounts, disks). Processes
descend from the command or have the mark in their environment. Temporary files are in the command's own directory. What
a local AWS would create on the machine itself without its sandbox has names that nothing else uses.
"""

import contextlib
import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from local.cache import cache_dir
from local.node.cgroups import cgroup_root
from local.run.local_aws import MARK_VARIABLE, runs_dir
from tests.launcher.sshd import make_privilege_separation_directory

REPOSITORY = Path(__file__).parents[1]
SETTLE_S = 120.0
PR_SET_CHILD_SUBREAPER = 36
TEMPORARY = "TMPDIR"
KEPT_BY_OTHERS = re.compile(r"pytest-of-.*|hypothesis|torchelastic_.*|torchinductor_.*|(?:jsii-kernel-|cdk\.out)\w{6}")
"""Directories that other programs keep on purpose: pytest's last three runs, Hypothesis's database and caches,
torchrun's logs and PyTorch's compiled kernels. They are in the directory that is removed after the command.

jsii kills its runtime when that takes more than five seconds to end, as on a busy machine; the runtime's own directory
and the CDK's then stay."""
NAMESPACES = re.compile(r"internet|(?:vpc|i)-[0-9a-f]{17}")
LINKS = re.compile(r"internet|user|igw|ens5|[0-9a-f]{15}")
"""Matches the names of links in a local AWS; those of nodes and VPCs derive from their ids."""
TABLES = re.compile(r"table inet (?:vpc|faults)")
WHERE_NODES_WRITE = ("/etc", "/etc/profile.d", "/etc/systemd/system", "/opt", "/run", "/run/systemd/system", "/var/lib")
NODES_FILES = re.compile(r"deeplearning|user-of-the-demo")
Snapshot = Mapping[str, frozenset[str]]


def take_snapshot() -> Snapshot:
    """Record everything that a command with this process's mark could leave behind."""
    mark = os.environ[MARK_VARIABLE]
    return {
        "process": _processes(mark),
        "mount": frozenset(line for line in Path("/proc/self/mounts").read_text().splitlines() if _is_run(line, mark))
        | _bound_files(mark),
        "loop device": _disks_in_use(mark),
        "cgroup": _names(cgroup_root(), f"deeplearning-cdk-{mark}*"),
        "run": _names(runs_dir(), f"{mark}*"),
        "namespace": frozenset(name for name in _names(Path("/run/netns"), "*") if NAMESPACES.fullmatch(name)),
        "link": frozenset(name for name in _links() if LINKS.fullmatch(name)),
        "firewall table": frozenset(line for line in _tables() if TABLES.fullmatch(line)),
        "file of a node": frozenset(
            str(path) for directory in WHERE_NODES_WRITE for path in Path(directory).glob("*")
            if NODES_FILES.search(path.name)
        ),
        "file of the checkout": _checkout(),
        "temporary file": _temporary_files(),
    }  # fmt: skip


def difference(before: Snapshot, after: Snapshot) -> list[str]:
    """Return one line for each thing that appeared or disappeared."""
    return [
        f"{kind} {change}: {thing}"
        for kind in before
        for change, things in (("left", after[kind] - before[kind]), ("lost", before[kind] - after[kind]))
        for thing in sorted(things)
    ]


def settled_difference(before: Snapshot) -> list[str]:
    """Wait up to SETTLE_S for the difference to disappear; return the rest."""
    deadline = time.monotonic() + SETTLE_S
    while (found := difference(before, take_snapshot())) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


@contextlib.contextmanager
def marked() -> Iterator[None]:
    """Give the processes that this one starts a new mark and their own directory for temporary files."""
    before = {name: os.environ.get(name) for name in (MARK_VARIABLE, TEMPORARY)}
    mark = secrets.token_hex(2)
    # Keep it short, because it contains sockets and Linux limits their paths to 107 bytes; not below pytest's own.
    directory = Path("/tmp", f"dlc-{mark}-{os.getpid()}")
    directory.mkdir(mode=0o700)
    os.environ.update({MARK_VARIABLE: mark, TEMPORARY: str(directory)})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        shutil.rmtree(directory)


def _names(directory: Path, pattern: str) -> frozenset[str]:
    return frozenset(path.name for path in directory.glob(pattern))


def _is_run(text: str, mark: str) -> bool:
    """Return True if a text contains the directory or the cgroup of a run with the mark."""
    return bool(re.search(rf"(?:deeplearning-cdk/run/|deeplearning-cdk-){mark}[0-9a-f]{{4}}\b", text))


def _bound_files(mark: str) -> frozenset[str]:
    """List files of runs that are mounted over others (proc_pid_mountinfo(5): field 4 is the source, 5 the target)."""
    lines = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return frozenset(f"{fields[3]} {fields[4]}" for fields in lines if _is_run(fields[3], mark))


def _processes(mark: str) -> frozenset[str]:
    """List processes that descend from this one, have the mark, or name a run in their arguments or their cgroup."""
    names, parents, descendant_pids = {}, {}, {os.getpid()}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # It ended in the meantime.
            pid, (state, parent) = int(process.name), (process / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            if state in "ZX":
                continue
            words = (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
            names[pid], parents[pid] = words or "(command line unavailable: process exited)", int(parent)
            variables = (process / "environ").read_bytes().split(b"\0")
            if f"{MARK_VARIABLE}={mark}".encode() in variables or _is_run(
                f"{words} {(process / 'cgroup').read_text()}", mark
            ):
                descendant_pids.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in descendant_pids} - descendant_pids:
        descendant_pids |= more
    return frozenset(f"{pid} {names[pid]}" for pid in descendant_pids & names.keys() - {os.getpid()})


def _disks_in_use(mark: str) -> frozenset[str]:
    """List files of runs that are still a loop device; the kernel releases them after the last unmount."""
    return frozenset(file for file in loop_devices().values() if _is_run(file, mark))


def loop_devices() -> dict[str, str]:
    """Return the files of the machine's loop devices by the device's name."""
    found = {}
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # Another program has detached it in the meantime.
            found[backing.parents[1].name] = backing.read_text().strip()
    return found


def _links() -> list[str]:
    return [link["ifname"] for link in json.loads(subprocess.check_output(["ip", "-json", "link"]))]


def _tables() -> list[str]:
    return subprocess.check_output(["nft", "list", "tables"], text=True).splitlines()


def _checkout() -> frozenset[str]:
    """List the files of the checkout, without bytecode: isolated programs write it beside their sources."""
    found = set[str]()
    # Unlike rglob, walk passes over directories that another program removes in the meantime.
    for directory, names, files in os.walk(REPOSITORY):
        names[:] = [name for name in names if name not in (".git", "__pycache__")]
        found.update(f"{directory}/{name}" for name in (*names, *files) if name != ".git")
    return frozenset(found)


def _temporary_files() -> frozenset[str]:
    directory = Path(os.environ[TEMPORARY])
    return frozenset(name for name in _names(directory, "*") if not KEPT_BY_OTHERS.fullmatch(name))


def prepare() -> None:
    """Create what any use of the cache and of sshd creates and nothing removes."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    make_privilege_separation_directory()
    runs_dir().mkdir(parents=True, exist_ok=True)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants (PR_SET_CHILD_SUBREAPER, prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def _run(command: Sequence[str]) -> int:
    """Run a command and return its exit code; also reap orphans that end in the meantime."""
    process = subprocess.Popen(command)
    while True:
        pid, status = os.wait()
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode


def main() -> int:
    # Background processes ignore Ctrl-C, and so would everything that the tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    adopt_orphans()
    prepare()
    with marked():
        before = take_snapshot()
        code = _run(sys.argv[1:])
        found = settled_difference(before)
    for line in found:
        sys.stderr.write(f"error: the machine is not as it was, {line}\n")
    return code or bool(found)


if __name__ == "__main__":
    sys.exit(main())
