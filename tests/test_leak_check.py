"""Test that the gate's comparison reports everything that is left, and ignores what other programs do."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.node.cgroups import cgroup_root
from tests import leak_check

COMPARE = """
import sys
from tests import leak_check
leak_check.SETTLE_S = float(sys.argv.pop(1))
sys.exit(leak_check.main())
"""
APART = ("unshare", "--fork", "--pid", "--kill-child", "--mount-proc", "--mount", "--net", "--propagation", "private",
         "sh", "-ec", 'mount -n -t tmpfs tmpfs /run; exec "$@"', "sh")  # fmt: skip
"""Command prefix that leaves things in separate namespaces; control groups, loop devices and files have none."""
OWN = f"{os.getpid() % 10000:04}"
"""End of the names used here, because the same tests may run in another checkout."""
LEFT_IN_THE_CHECKOUT = leak_check.REPOSITORY / "left-by-a-test"
BYTECODE = leak_check.REPOSITORY / "tests/__pycache__" / f"test{OWN}.pyc"
LEAKS = {
    "process": r"\d+ sleep 61",
    "process without variables": r"\d+ sleep 62",
    "mount": r"tmpfs \S+/run/\w{8} tmpfs .*",
    "file of a run that is mounted over another": r"/\S+/run/\w{8}/hosts /etc/hosts",
    "loop device": r"/\S+/run/\w{8}/disk.img",
    "cgroup": r"deeplearning-cdk-\w{8}",
    "run": r"\w{8}",
    "namespace": "vpc-0123456789abcdef0",
    "link": "igw",
    "firewall table": "table inet faults",
    "file of a node": "/run/deeplearning",
    "file of the checkout": re.escape(str(LEFT_IN_THE_CHECKOUT)),
    "temporary file": "left-in-tmpdir",
}
"""Reports expected for each kind of leftover."""
LEAK = f"""
    run=$XDG_CACHE_HOME/deeplearning-cdk/run/${{LOCAL_AWS_MARK}}{OWN}
    mkdir "$run"
    setsid sleep 61 < /dev/null > /dev/null 2>&1 & one=$!
    setsid env -i sleep 62 < /dev/null > /dev/null 2>&1 & other=$!
    echo 127.0.0.1 localhost > "$run/hosts"
    mount -n --bind "$run/hosts" /etc/hosts
    truncate --size 1M "$run/disk.img"
    losetup --find "$run/disk.img"
    mount -n -t tmpfs tmpfs "$run"
    mkdir {cgroup_root()}/deeplearning-cdk-${{LOCAL_AWS_MARK}}{OWN}
    ip netns add vpc-0123456789abcdef0
    ip link add igw type veth peer name eth1
    nft add table inet faults
    touch /run/deeplearning "{LEFT_IN_THE_CHECKOUT}" "$TMPDIR/left-in-tmpdir"
    runs() {{ [ "$(tr '\\0' ' ' < /proc/$1/cmdline)" = "$2 " ]; }}
    until runs $one "sleep 61" && runs $other "sleep 62"; do sleep 0.05; done
"""
USER_PREFIXES = f"""
    run=$XDG_CACHE_HOME/deeplearning-cdk/run/zzzz{OWN}
    mkdir "$run"
    truncate --size 1M "$run/disk.img"
    losetup --find "$run/disk.img"
    mount -n -t tmpfs tmpfs "$run"
    mkdir {cgroup_root()}/deeplearning-cdk-zzzz{OWN}
    ip netns add blue
    ip link add eth7 type veth peer name eth8
    nft add table inet filter
    touch /run/mount
    mkdir /tmp/jsii-kernel-{OWN}
    until mkdir -p "{BYTECODE.parent}" && touch "{BYTECODE}"; do :; done
    cd "$TMPDIR" && mkdir pytest-of-root hypothesis torchelastic_6qu39e1j torchinductor_root
    mkdir jsii-kernel-LasiDF cdk.outPM2688
"""


def compare(*command: str, cache: Path, settle_s: float = 0.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*APART, sys.executable, "-c", COMPARE, str(settle_s), *command],
        cwd=leak_check.REPOSITORY,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the test its own cache; afterwards remove what was left outside of it and of its namespaces."""
    directory = tmp_path_factory.mktemp("cache")
    yield directory
    for device, backing in leak_check.loop_devices().items():
        if backing.startswith(str(directory)):
            subprocess.run(["losetup", "--detach", f"/dev/{device}"], check=True)
    for directory in (*cgroup_root().glob(f"deeplearning-cdk-*{OWN}"), *Path("/tmp").glob(f"jsii-kernel-{OWN}")):
        directory.rmdir()
    for file in (LEFT_IN_THE_CHECKOUT, BYTECODE):
        file.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def report(cache: Path) -> list[str]:
    """Return the report on a command that leaves one thing of each kind."""
    done = compare("sh", "-ec", LEAK, cache=cache)
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize("kind", LEAKS)
def test_each_kind_of_leftover_of_a_command_is_reported(report: list[str], kind: str) -> None:
    name = {"process without variables": "process", "file of a run that is mounted over another": "mount"}.get(
        kind, kind
    )
    pattern = f"error: the machine is not as it was, {name} left: {LEAKS[kind]}"
    assert [line for line in report if re.fullmatch(pattern, line)], report


def test_every_kind_of_leftover_has_a_test() -> None:
    with leak_check.marked():
        assert leak_check.take_snapshot().keys() <= LEAKS.keys()


def test_things_made_by_other_programs_are_ignored(cache: Path) -> None:
    with subprocess.Popen(["sleep", "30"]) as process:
        done = compare("sh", "-ec", USER_PREFIXES, cache=cache)
        process.kill()
    assert (done.returncode, done.stderr) == (0, "")


def test_process_of_another_run_is_ignored() -> None:
    with leak_check.marked():
        before = leak_check.take_snapshot()
        # An orphan does not descend from this process, and this one has its own variables.
        script = "setsid env -i sleep 60 < /dev/null > /dev/null 2>&1 & echo $!"
        pid = int(subprocess.check_output(["env", "-i", "sh", "-c", script]))
        try:
            assert leak_check.difference(before, leak_check.take_snapshot()) == []
        finally:
            os.kill(pid, 9)


def test_each_thing_is_named_with_its_kind() -> None:
    before = {"link": frozenset({"lo", "eth0"}), "mount": frozenset({"a"})}
    after = {"link": frozenset({"lo"}), "mount": frozenset({"a", "b"})}
    assert leak_check.difference(before, after) == ["link lost: eth0", "mount left: b"]


@pytest.mark.parametrize(("script", "code"), [("True", 0), ("exit(7)", 7)])
def test_commands_own_exit_code_is_returned(script: str, code: int, cache: Path) -> None:
    done = compare(sys.executable, "-c", script, cache=cache)
    assert (done.returncode, done.stderr) == (code, "")


def test_what_ends_soon_after_the_command_is_waited_for(cache: Path) -> None:
    done = compare("sh", "-c", "setsid sleep 1 < /dev/null > /dev/null 2>&1 &", cache=cache, settle_s=20)
    assert (done.returncode, done.stderr) == (0, "")
