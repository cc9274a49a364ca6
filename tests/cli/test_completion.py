"""Test completion: the scripts for the shells, and what they complete."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cli.main import main
from cli.verbs.completion import SHELLS

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
    return [each.partition(",")[2].partition("\t")[0] for each in out.splitlines() if each]


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_reads_names_from_cdk_json(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete(shell, "dlcluster ssh ", monkeypatch, capsys) == ["master", "worker2", "worker3"]
    assert complete(shell, "dlcluster tunnel w", monkeypatch, capsys) == ["worker2", "worker3"]
    assert complete(shell, "dlcluster --cluster ", monkeypatch, capsys) == ["vision"]
    assert complete(shell, "dlcluster status --cluster v", monkeypatch, capsys) == ["vision"]
    assert len(complete(shell, "dlcluster logs --node deep", monkeypatch, capsys)) == 3


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


def test_the_shell_completes_the_files_of_a_command(
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


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_names_the_program(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert any(f"_DLCLUSTER_COMPLETE={shell}_complete" in line for line in rest)
    if shell == "zsh":
        assert (first, "compinit" in rest[0]) == ("#compdef dlcluster", True)
