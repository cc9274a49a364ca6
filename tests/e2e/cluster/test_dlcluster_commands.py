"""Use a running cluster from the laptop: push a script, run it, follow it, and pull its output files."""

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from local.run.user import User
from tests.e2e.support.deployed_cluster import NODES, STACK, DeployedCluster, aliases
from tests.local.terminal import CTRL_C, Terminal

SCRIPT = """\
import os, sys, time
from pathlib import Path
given = sys.argv[1:], sorted(os.listdir(".")), os.environ.get("LR"), os.environ.get("HERE")
words = "rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], *map(str, given)
os.write(1, (" ".join(words) + "\\n").encode())  # one write: a rank that is killed leaves a whole line or none
Path("out").mkdir(exist_ok=True)
Path("out", "rank-" + os.environ["RANK"]).write_text("done")
if "--fail" in sys.argv and os.environ["RANK"] == "1":
    sys.exit(3)
time.sleep(300)
"""
PORT = 18123


@dataclass(frozen=True, kw_only=True)
class Laptop:
    """A user in the directory of a project."""

    user: User
    project: Path

    def dlcluster(self, *words: str, code: int = 0) -> str:
        """Return a command's output; the command must end with this exit code."""
        done = subprocess.run(
            ["dlcluster", *words], cwd=self.project, env={**self.user.environment, "HERE": "on the laptop's"},
            capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def json(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.dlcluster(*words, "--json"))
        assert found["version"] == 1
        return found


@pytest.fixture(scope="module")
def laptop(cluster: DeployedCluster, tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    project = tmp_path_factory.mktemp("laptop") / "my project"
    (project / "data").mkdir(parents=True)
    (project / "data" / "large").write_text("stays here")
    (project / "train.py").write_text(SCRIPT)
    (project / ".gitignore").write_text("data/\n")
    subprocess.run(["git", "init", "-q", project], check=True)
    return Laptop(user=cluster.user, project=project)


def test_dlcluster_lists_clusters_and_nodes(laptop: Laptop, cluster: DeployedCluster) -> None:
    assert laptop.dlcluster("list").splitlines()[1].split()[:4] == [STACK, str(NODES), STACK, "CREATE_COMPLETE"]
    nodes = laptop.json("status")["nodes"]
    assert {node["instance_id"]: node["private_address"] for node in nodes} == cluster.addresses


def test_script_runs_on_every_node_and_its_results_come_back(laptop: Laptop, tmp_path: Path) -> None:
    options = ["--env", "LR=0.1", "--env", "HERE", "--venv", "/opt/pytorch"]
    output = laptop.dlcluster("run", *options, "--", "train.py", "--fail", "0.1 x", code=3)
    shown = "['--fail', '0.1 x'] ['.gitignore', 'train.py'] 0.1 on the laptop's"
    lines = {line for line in output.splitlines() if line.startswith("deeplearning-worker")}
    assert lines <= {f"deeplearning-worker{rank + 1} [0] rank {rank} of {NODES} {shown}" for rank in range(NODES)}
    assert lines
    job = laptop.json("jobs")["jobs"][-1]
    assert (job["state"], job["exit_code"], len(job["nodes"])) == ("FAILED", 3, NODES)
    assert shown in laptop.dlcluster("logs", job["id"])
    got = laptop.json("pull", "worker2:my-project/out", str(tmp_path / "two"))
    assert (got["files"], got["bytes"]) == (1, 4)
    assert [path.name for path in (tmp_path / "two").iterdir()] == ["rank-1"]


def test_ssh_runs_a_command_on_the_master(laptop: Laptop) -> None:
    assert laptop.dlcluster("ssh", "--", "cat /opt/deeplearning/workers").split() == aliases()


def test_push_brings_a_change_to_every_node(laptop: Laptop, cluster: DeployedCluster) -> None:
    (laptop.project / "new.py").write_text("new")
    found = laptop.json("push")
    assert (found["directory"], found["sent_files"]) == ("~/my-project", 1)
    for slot in range(1, NODES + 1):
        assert cluster.on(f"deeplearning-worker{slot}", "cat my-project/new.py") == "new"


def test_ctrl_c_leaves_the_job_running_until_it_is_stopped(laptop: Laptop) -> None:
    terminal = Terminal(
        ["dlcluster", "run", "--name", "held", "--", "train.py", "--wait"],
        directory=laptop.project,
        environment=laptop.user.environment,
    )
    job = terminal.expect(r"dlcluster: job (\S+) runs")[1]
    terminal.expect(r" rank \d of")
    terminal.type(CTRL_C)
    terminal.expect(rf"leave job {job} running \(Enter or Ctrl-C: yes\)\? \[Y/n\]: ")
    terminal.type("y\n")
    terminal.expect("keeps running: dlcluster logs -f")
    assert terminal.wait_for_end() == 130
    terminal.close()
    stopped = laptop.json("stop", "held")
    assert (stopped["job"], stopped["state"]) == (job, "CANCELLED")
    assert [job, "held"] == [
        laptop.dlcluster("run", "--", "launch", "list").splitlines()[-1].split()[at] for at in (0, 6)
    ]


def test_tunnel_reaches_a_nodes_port(laptop: Laptop, cluster: DeployedCluster) -> None:
    serve = f"nohup python3 -m http.server {PORT} --bind 127.0.0.1 --directory /etc/deeplearning >/dev/null 2>&1 &"
    cluster.on("deeplearning-worker2", serve)
    try:
        answers = f"(exec 3<>/dev/tcp/127.0.0.1/{PORT}) 2>/dev/null"
        wait = f"for i in $(seq 600); do {answers} && exit; sleep 0.1; done; exit 1"
        cluster.on("deeplearning-worker2", f"bash -c '{wait}'")
        tunnel = subprocess.Popen(
            ["dlcluster", "tunnel", "worker2", str(PORT)],
            env=dict(laptop.user.environment), stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert tunnel.stdout is not None
        address = tunnel.stdout.readline().split()[0]
        assert address == f"http://127.0.0.1:{PORT}/"
        with urlopen(address, timeout=60) as answer:
            assert answer.status == 200
        os.killpg(tunnel.pid, signal.SIGINT)
        assert tunnel.wait(60) == 130
        tunnel.stdout.close()
    finally:
        cluster.on("deeplearning-worker2", f"pkill -f 'http.server {PORT}'")
