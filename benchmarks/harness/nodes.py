"""Start nodes for benchmarks of the launcher: a real sshd for each, on its own address, all on this machine.

Everything runs in separate namespaces with private /etc, /run and network: names, host keys and the cluster's key are
in the same places as on a cluster, and the machine stays unchanged.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bootstrap.contract import CLUSTER_KEY_FILE, KNOWN_HOSTS_FILE, SSH_CLIENT_CONFIG_FILE, worker_host
from local.cache import cache_dir
from tests.launcher.sshd import make_key, sshd_nodes

INSIDE = "DEEPLEARNING_BENCHMARK_NAMESPACES"
RUN_TIMEOUT_S = 1700
UNSHARE = ("unshare", "--fork", "--pid", "--kill-child=KILL", "--mount-proc", "--mount", "--net",
           "--propagation", "private")  # fmt: skip
SSH_PORT = 22
REPOSITORY = Path(__file__).resolve().parents[2]
LAUNCH = ["/usr/bin/python3", "-I", "-S", "-X", "utf8", str(REPOSITORY / "launcher/__main__.py")]
"""Command that starts ``launch`` on a node (bootstrap/install.py)."""


def run_in_namespaces(module: str, measure: Callable[[], None]) -> int:
    """Call ``measure`` inside fresh namespaces, in which this process starts the module again."""
    if INSIDE in os.environ:
        measure()
        return 0
    inside = [*UNSHARE, sys.executable, "-m", module, *sys.argv[1:]]
    return subprocess.run(inside, env={**os.environ, INSIDE: "1"}, check=False, timeout=RUN_TIMEOUT_S).returncode


@contextmanager
def running_nodes(count: int, *, programs: Path | None = None) -> Iterator[Path]:
    """Start ``count`` nodes named as in a cluster (worker1 and so on), and yield their hosts file.

    The tree ``programs`` is mounted over /usr.
    """
    if programs is not None:
        _mount("overlay", "/usr", f"lowerdir={programs}:/usr")
    _mount("tmpfs", "/run")
    with TemporaryDirectory(dir="/run") as temporary:
        directory = Path(temporary)
        _private_etc(directory)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=30)
        addresses = [f"127.0.1.{node_index}" for node_index in range(1, count + 1)]
        names = [worker_host(node_index) for node_index in range(1, count + 1)]
        key = Path(CLUSTER_KEY_FILE)
        key.parent.mkdir(parents=True, exist_ok=True)
        key.unlink(missing_ok=True)
        with sshd_nodes(directory, addresses, authorized=make_key(key), port=SSH_PORT) as nodes:
            with Path("/etc/hosts").open("a") as file:
                file.writelines(f"{address} {name}\n" for address, name in zip(addresses, names, strict=True))
            Path(KNOWN_HOSTS_FILE).write_text(
                "".join(f"{name} {node.host_key}\n" for name, node in zip(names, nodes, strict=True))
            )
            # Other programs' ssh needs the same key.
            Path(SSH_CLIENT_CONFIG_FILE).write_text(f"Host {worker_host(0)[:-1]}*\n  IdentityFile {CLUSTER_KEY_FILE}\n")
            # Only the first node inherits this variable: remove it, so that all nodes are alike.
            os.environ.pop("PYTHONPYCACHEPREFIX", None)
            runtime = directory / "runtime"
            runtime.mkdir(mode=0o700)
            os.environ |= {
                "HOME": str(directory),
                "XDG_CACHE_HOME": str(cache_dir().parent),
                "XDG_RUNTIME_DIR": str(runtime),
            }
            hosts_file = directory / "workers"
            hosts_file.write_text("".join(f"{name}\n" for name in names))
            yield hosts_file


def machine() -> str:
    """Describe the machine, which determines the times."""
    load = " ".join(f"{average:.1f}" for average in os.getloadavg())
    return f"{os.cpu_count()} cores, load {load}, Python {sys.version.split()[0]}"


def _private_etc(directory: Path) -> None:
    upper, work = directory / "etc", directory / "etc.work"
    upper.mkdir()
    work.mkdir()
    _mount("overlay", "/etc", f"lowerdir=/etc,upperdir={upper},workdir={work}")


def _mount(kind: str, place: str, options: str = "rw") -> None:
    subprocess.run(["mount", "-t", kind, "-o", options, kind, place], check=True, timeout=30)
