"""Start control plane, network and nodes inside the sandbox, then run the user's command with AWS's variables set.

python -m local.run.startup RUN_DIR CGROUP LAYERS -- COMMAND...     (started by `python -m local run`)
"""

import logging
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from local.cache import cache_dir, locked
from local.control_plane import api_faults
from local.control_plane.limits import limit_files
from local.data_plane import changes
from local.network import check_ip, vpc_network
from local.network.addresses import API_PORT, USER_ENDPOINT
from local.node.container import save_start_logs
from local.run.local_aws import announce, without_user_variables
from local.run.monitor import Monitor
from local.run_dir import RUN_DIR_VARIABLE

log = logging.getLogger(__name__)
REPOSITORY = Path(__file__).parents[2]
REGION = "us-east-1"
START_TIMEOUT_S = 180.0


def run_variables(run_dir: Path) -> dict[str, str]:
    """Return variables with which unmodified AWS clients reach the local AWS and write only below ``run_dir``."""
    environment = Path(sys.prefix)
    return {
        "AWS_ENDPOINT_URL": USER_ENDPOINT,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "DLCLUSTER_CHECKIP_URL": check_ip.URL,
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(cache_dir() / "jsii"),
        "PYTHONPYCACHEPREFIX": str(cache_dir() / "pycache"),
        "HOME": str(run_dir / "home"),
        "TMPDIR": str(run_dir / "tmp"),
        RUN_DIR_VARIABLE: str(run_dir),
        "PATH": f"{REPOSITORY / 'bin'}:{REPOSITORY / 'local/bin'}:{environment / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin",
    }


def _mount(*arguments: str | Path) -> None:
    # -n, because /run is still the machine's here, and must not get notes about these mounts.
    subprocess.run(["mount", "-n", *arguments], check=True)


def _mount_home(run_dir: Path) -> None:
    """Make ``home`` the home directory even for programs that read the password file, such as OpenSSH."""
    home = run_dir / "home"
    (home / ".ssh").mkdir(mode=0o700, parents=True)
    user = pwd.getpwuid(os.getuid())
    old, new = (":".join([user.pw_gecos, directory, ""]) for directory in (user.pw_dir, str(home)))
    lines = Path("/etc/passwd").read_text().splitlines()
    passwd = [line.replace(old, new) if line.startswith(f"{user.pw_name}:") else line for line in lines]
    accounts = run_dir / "passwd"
    accounts.write_text("\n".join(passwd) + "\n")
    _mount("--bind", accounts, "/etc/passwd")


def _mount_private_files(run_dir: Path) -> None:
    """Set up a private /run, a pure cgroup v2, and an overlay over the checkout that keeps writes in ``run_dir``.

    An overlay keeps showing a file that was replaced below it, until a remount (reconfigure_super in Linux's
    fs/super.c drops its unused entries).
    """
    for name in ("tmp", "log", "nodes", "checkout/upper", "checkout/work"):
        (run_dir / name).mkdir(parents=True, exist_ok=True)
    _mount_home(run_dir)
    _mount("-t", "tmpfs", "tmpfs", "/run")
    Path("/run/sshd").mkdir()
    _mount("-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
    upper, work = run_dir / "checkout/upper", run_dir / "checkout/work"
    options = f"lowerdir={REPOSITORY},upperdir={upper},workdir={work}"
    _mount("-t", "overlay", "overlay", "-o", options, REPOSITORY)
    os.chdir(REPOSITORY)


def _start(module: str, *arguments: str, run_dir: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with (run_dir / "log" / f"{module}.log").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip


def _wait_for_control_plane(process: subprocess.Popen[bytes], log_file: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", API_PORT), timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    tail = "\n".join(log_file.read_text(errors="replace").splitlines()[-20:])
    raise TimeoutError(f"waited {START_TIMEOUT_S:.0f} s for the control plane at {USER_ENDPOINT}:\n{tail}")


def _start_control_plane(run_dir: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the control plane, and wait until it answers. Raises TimeoutError."""
    # Listen on every address of the sandbox's own network namespace: users connect by loopback, nodes by the internet.
    options = ["--host", "0.0.0.0", "--port", str(API_PORT)]  # noqa: S104  (see above)
    files = {
        "--request-log": "log/requests.jsonl",
        "--api-faults": api_faults.FILE,
        "--changes": changes.FILE,
        "--capacities": limit_files.CAPACITY_FILE,
        "--quotas": limit_files.QUOTA_FILE,
    }
    options += [word for option, file in files.items() for word in (option, str(run_dir / file))]
    process = _start("local.control_plane", *options, run_dir=run_dir, environment=environment)
    _wait_for_control_plane(process, run_dir / "log/local.control_plane.log")
    return process


def _save_logs(run_dir: Path) -> None:
    """Copy the last run's logs to the cache, so that a failure can be examined afterwards."""
    saved = cache_dir() / "last-log"
    with locked("last-log"):
        shutil.rmtree(saved, ignore_errors=True)
        shutil.copytree(run_dir / "log", saved)
        for directory in (run_dir / "nodes").iterdir():
            save_start_logs(directory, saved)


def run_command(command: Sequence[str], *, run_dir: Path, cgroup: str, layers: str) -> int:
    """Start the local AWS, run the command, return its exit code. The sandbox's end removes everything."""
    _mount_private_files(run_dir)
    variables = run_variables(run_dir)
    environment = without_user_variables(os.environ) | variables
    vpc_network.create_internet()
    control_plane = _start_control_plane(run_dir, environment)
    data_plane = _start("local.data_plane", str(run_dir), cgroup, layers, run_dir=run_dir, environment=environment)
    programs = {"local.control_plane": control_plane, "local.data_plane": data_plane}
    end_watching = Monitor(run_dir, programs=programs, warn=lambda line: print(line, file=sys.stderr)).start()
    announce(run_dir, checkout=REPOSITORY, variables=variables)
    try:
        return subprocess.run(command, env=environment, check=False).returncode
    finally:
        end_watching()
        _save_logs(run_dir)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run_dir, cgroup, layers, _separator, *command = sys.argv[1:]
    raise SystemExit(run_command(command, run_dir=Path(run_dir), cgroup=cgroup, layers=layers))
