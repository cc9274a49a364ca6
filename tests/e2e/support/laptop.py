"""Act as a user with a checkout of their own, who edits cdk.json and runs commands there."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.faults.clients import client
from local.run.user import USER_SETTINGS, User
from tests.e2e.support.checkouts import copy_checkout
from tests.waiting import wait_until

COMMAND_S = 600
HEAL_S = 180.0
JOB_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Laptop:
    """A user with a checkout of their own."""

    user: User
    checkout: Path

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """Start a command as the leader of a session; its standard output has its errors too."""
        return subprocess.Popen(
            command,
            cwd=self.checkout,
            env=dict(self.user.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *command: str) -> str:
        """Return a command's standard output; it must succeed."""
        done = self._try(*command)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def output_of_failure(self, *command: str) -> str:
        """Return all output of a command, which must fail."""
        process = self.start(*command)
        output, _ = process.communicate(timeout=COMMAND_S)
        assert process.returncode == 1, output
        return output

    def on(self, host: str, command: str) -> str:
        """Return a command's output on a node."""
        self.user.write_ssh_config()
        return self.user.ssh(f"deeplearning-{host}", command)

    def set(self, **settings: Any) -> None:
        """Change settings in cdk.json."""
        file = self.checkout / "cdk.json"
        content = json.loads(file.read_text())
        content["context"]["cluster"] |= settings
        file.write_text(json.dumps(content))

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = json.loads((self.checkout / "cdk.json").read_text())["context"]["cluster"]
        return settings

    def node(self, node_index: int) -> dict[str, Any] | None:
        """Return a node of ``dlcluster status --json``; None while the number is free."""
        nodes = json.loads(self.run("dlcluster", "status", "--json"))["nodes"]
        return next((node for node in nodes if node["index"] == node_index), None)

    def replace(self, node_index: int, *, is_back: Callable[[dict[str, Any]], bool]) -> str:
        """End a node, wait until its replacement is as wanted, and return the replacement's ID."""
        before = self.node(node_index)
        assert before
        lost = before["instance_id"]
        client("ec2").terminate_instances(InstanceIds=[lost])

        def is_replaced() -> bool:
            node = self.node(node_index)
            return node is not None and node["instance_id"] != lost and is_back(node)

        wait_until(is_replaced, f"the replacement of node {node_index}", timeout_s=HEAL_S, every_s=2.0)
        after = self.node(node_index)
        assert after
        return str(after["instance_id"])

    def wait_for_job_on(self, *hosts: str) -> None:
        """Wait until a job runs on these nodes and no others; a new master's key takes a moment to reach them."""

        def runs_on_hosts() -> bool:
            output = self._try("dlcluster", "run", "--no-sync", "--", "echo", "here").stdout
            return {line.split()[0] for line in output.splitlines() if line.endswith(" here")} == {*hosts}

        wait_until(runs_on_hosts, f"a job on {', '.join(hosts)}", timeout_s=JOB_TIMEOUT_S, every_s=2.0)

    def _try(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            cwd=self.checkout,
            env=dict(self.user.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )


def new_laptop(user: User, directory: Path, settings: Mapping[str, Any] | None = None) -> Laptop:
    """Copy the project below a directory, and write the settings for here and these into its cdk.json."""
    made = Laptop(user=user, checkout=copy_checkout(directory))
    made.set(**{**USER_SETTINGS, **(settings or {})})
    return made


def wait_for_line(process: "subprocess.Popen[str]", line: str) -> None:
    """Read a command's output until a line contains a text."""
    assert process.stdout
    end = time.monotonic() + COMMAND_S
    for message in process.stdout:
        assert time.monotonic() < end, f"waited {COMMAND_S} s for {line!r}"
        if line in message:
            return
    raise AssertionError(f"the command ended without {line!r}")


def kill(process: "subprocess.Popen[str]", *, group: bool) -> None:
    """Kill a command, also with everything that it started."""
    if group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait(timeout=10)
    if process.stdout:
        process.stdout.close()
