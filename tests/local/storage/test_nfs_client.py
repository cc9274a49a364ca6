"""Test the stand-in for the kernel's NFS client: what it mounts is used like a directory, and waits for its server.

The mounts are in a mount namespace of their own, whose files of a node are made as for a node.
"""

import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from local.storage import client_install, nfs_mount_helper
from local.storage.exports import make_export_directory
from local.storage.nfs_client.connection import ANSWER_VALID_S
from local.storage.rpc import read_record, reply
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[3]
SYSTEM = "fs-0123"
SET_UP = """
mount -t tmpfs tmpfs /var/lib && mkdir -p /var/lib/local-aws/file-systems
mount --bind "$1" /var/lib/local-aws/file-systems
mount -t tmpfs tmpfs /sys/fs/cgroup && echo ready && exec sleep infinity
"""
HELPER = "import sys; from local.storage import nfs_mount_helper as helper; helper.LIBRARY = sys.argv.pop(1); "
USE = f"""
set -e
cd {{0}}
printf one > a && printf two >> a && mv a b && ln b c && ln -s b d && [ "$(cat d c)" = onetwoonetwo ]
mkdir -p x/y && mv x z && rmdir z/y && [ "$(ls -A z)" = "" ]
touch $(seq -f many-%g 300) && [ $(ls | wc -l) = 304 ]
dd if=/dev/urandom of=large bs=1M count=3 status=none && cp large z/copy && cmp large z/copy && truncate -s 5 large
[ "$(stat -c %s large)" = 5 ] && touch -d @1000 b && [ "$(stat -c %Y b)" = 1000 ] && df . >/dev/null
install -d -m 1777 open && setpriv --reuid 65534 --clear-groups touch open/theirs
[ "$(stat -c %u open/theirs)" = 65534 ] && ! setpriv --reuid 65534 --clear-groups rm b 2>/dev/null
chmod 640 b && [ "$(stat -c %a b)" = 640 ] && rm many-* c d && ! cat many-1 2>/dev/null
{sys.executable} -c 'import mmap; f = open("b", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0:3] = b"ONE"; m.flush()'
cat b
"""


class MountTarget:
    """Serves the file system on the loopback address, at the same port after an outage."""

    def __init__(self) -> None:
        self._connections: set[socket.socket] = set()
        self.port = 0
        self.serves = SYSTEM
        self.start()

    def start(self) -> None:
        target = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                target._connections.add(self.request)
                with suppress(OSError):
                    while answer := reply(read_record(self.request.recv), target.serves):
                        self.request.sendall(answer)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = allow_reuse_address = True

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections.clear()


class Node:
    """A mount namespace with what a node has."""

    def __init__(self, directory: Path, target: MountTarget) -> None:
        self._library = directory / "disk" / nfs_mount_helper.LIBRARY.lstrip("/")
        client_install._install_nfs_client(self._library)
        make_export_directory(directory, SYSTEM)
        self._target = target
        self._started: list[subprocess.Popen[str]] = []
        own = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "bash",
            "-euc",
            SET_UP,
            "",
            str(directory / client_install.EXPORTS),
        ]
        self._process = subprocess.Popen(own, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        self.enter = ["nsenter", "--mount", f"--wd={REPOSITORY}", "--target", str(self._process.pid)]

    def start(self, *command: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        process = subprocess.Popen([*self.enter, *command], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self._started.append(process)
        return process

    def run(self, script: str) -> str:
        process = self.start("bash", "-c", script)
        printed, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        return printed

    def mount(self, mount_point: Path) -> tuple[int, str]:
        """Return the exit code and the message of the mount helper."""
        mount_point.mkdir()
        options = f"rw,vers=4.1,proto=tcp,addr=127.0.0.1,port={self._target.port},nosuid,nodev"
        program = f"{HELPER} sys.exit(helper.main(sys.argv[1:]))"
        args = [sys.executable, "-c", program, str(self._library), "127.0.0.1:/", str(mount_point), "-o", options]
        process = self.start(*args)
        _, errors = process.communicate(timeout=60)
        return process.returncode, errors

    def end(self, *mount_points: Path) -> None:
        for mount_point in mount_points:
            self.run(f"! mountpoint -q {mount_point} || umount -l {mount_point}")
        for process in (*self._started, self._process):
            process.kill()
            if process.stdout is not None and not process.stdout.closed:
                process.communicate()


@pytest.fixture
def target() -> Iterator[MountTarget]:
    target = MountTarget()
    yield target
    target.stop()


@pytest.fixture
def node(target: MountTarget, tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path, target)
    yield node
    node.end(tmp_path / "one", tmp_path / "two")


def test_mounted_file_system_is_used_like_a_directory(node: Node, tmp_path: Path) -> None:
    assert node.mount(tmp_path / "one") == (0, "")
    assert node.run(USE.format(tmp_path / "one")) == "ONEtwo"
    kind, source, options = node.run(f"findmnt -n -o FSTYPE,SOURCE,OPTIONS {tmp_path}/one").split()
    assert (kind, source) == ("fuse.nfs4", f"127.0.0.1:/{SYSTEM}")
    assert options.startswith("rw,nosuid,nodev,")


def test_two_mounts_show_the_same_files_and_locks(node: Node, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert [node.mount(mount_point)[0] for mount_point in (one, two)] == [0, 0]
    for text in ("first", "2nd"):
        node.run(f"printf {text} > {one}/file.new && mv {one}/file.new {one}/file")
        assert node.run(f"cat {two}/file") == text
    holder = node.start("flock", f"{one}/file", "-c", f"touch {one}/held; while [ -e {one}/held ]; do sleep 0.05; done")
    wait_until(lambda: "held" in node.run(f"ls {two}"), "the lock", timeout_s=30)
    assert node.run(f"flock -n {two}/file true || printf 'it is held'") == "it is held"
    waiting = node.start("flock", f"{two}/file", "rm", f"{two}/file")
    given_up = node.start("flock", "-w", "0.2", f"{two}/file", "true")
    assert (given_up.wait(30), waiting.poll()) == (1, None)
    node.run(f"rm {one}/held")
    assert (holder.wait(30), waiting.wait(30)) == (0, 0)
    assert node.run(f"ls {one}") == ""


def test_whatever_touches_it_waits_in_the_kernel_while_the_mount_target_is_gone(
    node: Node, target: MountTarget, tmp_path: Path
) -> None:
    one = tmp_path / "one"
    node.mount(one)
    node.run(f"printf kept > {one}/file")
    program = f"f = open('{one}/written', 'w', buffering=1); print('open', flush=True); input(); print('more', file=f)"
    writer = node.start(sys.executable, "-c", program)
    assert writer.stdin is not None
    assert writer.stdout is not None
    assert writer.stdout.readline() == "open\n"
    target.stop()
    time.sleep(ANSWER_VALID_S + 0.5)
    writer.stdin.write("\n")
    writer.stdin.flush()
    reader, *others = [node.start(*args, f"{one}{path}") for path, *args in (("/file", "cat"), ("", "ls"), ("", "df"))]
    killed = node.start("stat", f"{one}/file")
    time.sleep(1)
    assert [process.poll() for process in (writer, reader, *others, killed)] == [None] * 5
    killed.kill()
    assert killed.wait(10) == -9
    target.start()
    assert [process.wait(30) for process in (writer, reader, *others)] == [0] * 4
    assert reader.communicate()[0] == "kept"
    assert node.run(f"cat {one}/written") == "more\n"


def test_failed_mounts_state_their_reason(node: Node, target: MountTarget, tmp_path: Path) -> None:
    target.serves = "fs-other"
    missing = "mount.nfs4: mounting failed, reason given by server: No such file or directory\n"
    assert node.mount(tmp_path / "one") == (32, missing)
    target.stop()
    code, message = node.mount(tmp_path / "two")
    assert (code, message[:47]) == (32, "mount.nfs4: Connection refused or timed out: [E")
    target.start()
