"""Run jobs whose ranks get secrets, with a stand-in for the aws command line."""

import json
import os
from pathlib import Path

from tests.launcher.loopback_cluster import ADDRESSES, LoopbackCluster, Result

VALUE = "hidden-7f3a"
ABSENT = "An error occurred (ParameterNotFound) when calling the GetParameter operation: "
AWS = f"""\
echo asked >> {{directory}}/asked
[ -e {{directory}}/value ] || {{{{ echo "{ABSENT}" >&2; exit 254; }}}}
cat {{directory}}/value
"""
COUNT = """awk 'index($0, ENVIRON["WANDB_API_KEY"]) { n++ } END { print n + 0 }'"""
SCRIPT = f'echo "${{#WANDB_API_KEY}}"; ps -ww -e -o args= | {COUNT}; [ $TORCHELASTIC_RESTART_COUNT = 1 ]'
"""Line that prints the length of the value, and the number of command lines containing it."""


def launch(cluster: LoopbackCluster, *arguments: str) -> Result:
    path = cluster.write_program("aws", AWS.format(directory=cluster.directory)).parent
    environment = {"PATH": f"{path}:{cluster.environment['PATH']}"}
    return cluster.run(*arguments, hosts=ADDRESSES[:1], environment=environment)


def test_only_ranks_have_the_secret_after_a_restart(cluster: LoopbackCluster) -> None:
    (cluster.directory / "value").write_text(json.dumps(VALUE))
    result = launch(cluster, "--secret", "WANDB_API_KEY=ssm:/team/wandb", "--max-restarts", "1", SCRIPT)
    assert (result.code, result.lines) == (0, ["127.0.0.1 [0] 0"] * 2 + [f"127.0.0.1 [0] {len(VALUE)}"] * 2)
    assert (cluster.directory / "asked").read_text().split() == ["asked"] * 2
    assert files_with(VALUE, cluster.directory) == [cluster.directory / "value"]


def test_nothing_starts_if_a_secret_is_missing(cluster: LoopbackCluster) -> None:
    result = launch(cluster, "--secret", "KEY=ssm:/team/wandb", "echo started")
    assert (result.code, result.stdout) == (1, b"")
    assert result.reason == "launch: nothing started: 127.0.0.1: ssm:/team/wandb: is not there"
    assert (cluster.directory / "asked").read_text() == "asked\n"


def files_with(text: str, directory: Path) -> list[Path]:
    paths = [Path(root, name) for root, _, names in os.walk(directory) for name in names]
    return [path for path in paths if path.is_file() and text.encode() in path.read_bytes()]
