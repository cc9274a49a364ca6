"""Test completion: the scripts for the shells, and what they complete."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import boto3
import pytest

from cli.commands.completion import CHANGES, SHELLS
from cli.errors import EXIT_NO_CLUSTER
from cli.main import main
from cli.seen_clusters import FILE, SeenCluster, forget, read_seen, remember
from tests.cli.moto_cluster import REGION, Deploy
from tests.local.terminal import Terminal

BIN = Path(__file__).parents[2] / "bin"


@pytest.fixture(autouse=True)
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a directory with a cdk.json."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "cdk.json"
    path.write_text(json.dumps({"context": {"cluster": {"cluster_name": "vision", "worker_count": 2}}}))
    return path


def complete(shell: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the words that a shell gets for the last, incomplete word of a line."""
    words = line.split(" ")
    monkeypatch.setenv("_DLCLUSTER_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words) - 1))
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    if shell == "zsh":  # type, word and help are lines
        return out.splitlines()[1::3]
    return [line.partition(",")[2].partition("\t")[0] for line in out.splitlines() if line]


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_reads_names_from_cdk_json(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete(shell, "dlcluster ssh ", monkeypatch, capsys) == ["master", "worker2", "worker3"]
    assert complete(shell, "dlcluster tunnel w", monkeypatch, capsys) == ["worker2", "worker3"]
    assert complete(shell, "dlcluster --cluster ", monkeypatch, capsys) == ["vision"]
    assert complete(shell, "dlcluster status --cluster v", monkeypatch, capsys) == ["vision"]
    assert len(complete(shell, "dlcluster logs --node deep", monkeypatch, capsys)) == 3


@pytest.mark.parametrize("shell", SHELLS)
def test_nodes_that_dlcluster_has_seen_complete_in_any_directory(
    shell: str, app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    remember(SeenCluster(name="audio", region=REGION, nodes=(1, 2, 3, 4)))
    remember(SeenCluster(name="vision", region=REGION, nodes=(1, 5)))
    assert complete(shell, "dlcluster ssh ", monkeypatch, capsys) == ["master", "worker5"]
    app.unlink()
    assert complete(shell, "dlcluster tunnel w", monkeypatch, capsys) == ["worker5"]
    assert complete(shell, "dlcluster pull w", monkeypatch, capsys) == ["worker5:"]
    assert complete(shell, "dlcluster logs --node deep", monkeypatch, capsys)[1:] == ["deeplearning-worker5"]
    assert complete(shell, "dlcluster --cluster audio ssh worker4", monkeypatch, capsys) == ["worker4"]
    assert complete(shell, "dlcluster ssh --region us-east-2 ", monkeypatch, capsys) == ["master"]
    assert complete(shell, "dlcluster --cluster ", monkeypatch, capsys) == ["audio", "vision"]


def test_command_remembers_the_cluster_and_forgets_one_that_is_gone(deploy: Deploy) -> None:
    deploy("vision")
    assert main(["status"]) == 0
    assert main(["status"]) == 0
    assert read_seen() == [SeenCluster(name="vision", region=REGION, nodes=(1, 2, 3))]
    assert [path.name for path in (Path.home() / FILE).parent.iterdir()] == [Path(FILE).name]
    assert main(["--cluster", "gone", "status"]) == EXIT_NO_CLUSTER
    assert len(read_seen()) == 1
    boto3.client("cloudformation", region_name=REGION).delete_stack(StackName="vision-stack")
    assert main(["status"]) == EXIT_NO_CLUSTER
    assert read_seen() == []


def test_clusters_of_one_name_in_two_accounts_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    remember(SeenCluster(name="vision", region=REGION, nodes=(1, 2)))
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert read_seen() == []
    remember(SeenCluster(name="vision", region=REGION, nodes=(1, 2, 3)))
    assert read_seen() == [SeenCluster(name="vision", region=REGION, nodes=(1, 2, 3), profile="other")]
    forget("vision", REGION)
    assert read_seen() == []
    monkeypatch.delenv("AWS_PROFILE")
    assert read_seen() == [SeenCluster(name="vision", region=REGION, nodes=(1, 2))]


def test_cache_of_an_earlier_version_is_read() -> None:
    file = Path.home() / FILE
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps([["vision", REGION, [1, 2]]]))
    assert read_seen() == [SeenCluster(name="vision", region=REGION, nodes=(1, 2))]


def test_home_that_cannot_be_written_changes_nothing(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy("vision")
    monkeypatch.setenv("HOME", "/dev/null")
    assert main(["status"]) == 0
    assert read_seen() == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "7", "[7]", '[["a", "r"]]', '[["a", "r", [true]]]', '[["a\x1b", "r", [1]]]', '[["a", 1, [1]]]', "["],
)
def test_damaged_completion_cache_is_ignored(
    text: str, app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app.unlink()
    file = Path.home() / FILE
    file.parent.mkdir(parents=True)
    file.write_text(text * (100_000 if text == "[" else 1))
    assert complete("bash", "dlcluster ssh ", monkeypatch, capsys) == ["master"]


@pytest.mark.parametrize("text", ["{", "{}", '{"context": {"cluster": {"worker_count": "many"}}}'])
def test_completion_without_settings_offers_the_master(
    app: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app.write_text(text)
    assert complete("bash", "dlcluster ssh ", monkeypatch, capsys) == ["master"]
    assert complete("bash", "dlcluster --cluster ", monkeypatch, capsys) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dlcluster ss", ["ssh", "ssh-config", "ssm-proxy"]),
        ("dlcluster completion z", ["zsh"]),
        ("dlcluster preflight --con", ["--context"]),
        ("dlcluster status unexpected ", []),
        ("dlcluster status -- ", []),
    ],
)
def test_completion_never_prints_an_error(
    line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [
        word for word in complete("bash", line, monkeypatch, capsys) if word in expected or not expected
    ] == expected


def test_shell_completes_the_files_of_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_DLCLUSTER_COMPLETE", "bash_complete")
    for line in ("dlcluster run -- tra", "dlcluster run tra", "dlcluster -i tra"):
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
        with pytest.raises(SystemExit):
            main([])
        assert capsys.readouterr().out == "file,tra\n"


def test_bash_completes_a_nodes_name() -> None:
    script = r"""eval "$(dlcluster completion bash)"
COMP_WORDS=(dlcluster ssh w) COMP_CWORD=2
[[ $(complete -p dlcluster) =~ -F\ ([^ ]+) ]] && "${BASH_REMATCH[1]}" dlcluster && echo "${COMPREPLY[@]}"
"""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("worker2 worker3\n", "")


def test_no_error_reaches_the_prompt(tmp_path: Path) -> None:
    program = tmp_path / "dlcluster"
    program.write_text("#!/bin/sh\necho no module >&2\nexit 1\n")
    program.chmod(0o755)
    dlcluster = shlex.quote(str(BIN / "dlcluster"))
    script = f"""set -u; eval "$({dlcluster} completion bash)"
COMP_WORDS=(dlcluster ssh w) COMP_CWORD=2
_dlcluster_completion dlcluster
"""
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("command", "load", "function"),
    [
        ("bash --norc --noprofile -i", 'eval "$(dlcluster completion bash)"', 'dlcluster() { echo "<$*>"; }'),
        ("zsh -f -i", 'eval "$(dlcluster completion zsh)"', 'dlcluster() { echo "<$*>"; }'),
        ("fish --no-config -i", "dlcluster completion fish | source", 'function dlcluster; echo "<$argv>"; end'),
    ],
    ids=SHELLS,
)
def test_words_are_completed_on_a_terminal(command: str, load: str, function: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    # An interactive fish leaves a directory of its own in TMPDIR.
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PS1": "> ", "TMPDIR": str(tmp_path)}
    terminal = Terminal(command.split(), directory=tmp_path, environment=environment)
    terminal.type(f"{load}; echo loa''ded\n")
    terminal.expect("loaded")
    # The completion runs the program, not the function.
    terminal.type(f"{function}; echo defi''ned\n")
    terminal.expect("defined")
    for typed, words in (
        # No space follows NODE: because a path does.
        ("pull worker2\tcode", "pull worker2:code"),
        ("tunn\tworker3\t8080", "tunnel worker3 8080"),
        ("run -- tra\t--lr", "run -- train.py --lr"),
    ):
        terminal.type(f"dlcluster {typed}\n")
        terminal.expect(re.escape(f"<{words}>"))
    terminal.type("exit\n")
    terminal.wait_for_end()
    terminal.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_script_names_the_program(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert [new for _, new in CHANGES[shell] if new not in script] == []
    first, *rest = script.splitlines()
    assert any(f"_DLCLUSTER_COMPLETE={shell}_complete" in line for line in rest)
    if shell == "zsh":
        assert (first, "compinit" in rest[0]) == ("#compdef dlcluster", True)
