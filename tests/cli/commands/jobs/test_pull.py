"""Test pull's report of what it received."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.commands.jobs import pull
from cli.errors import ClusterError
from cli.files.download import Differing, Download
from cli.main import main
from tests.cli.moto_cluster import error_line


@pytest.fixture(autouse=True)
def _got(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project" / "runs").mkdir(parents=True)
    (tmp_path / "project" / "runs" / "1").touch()
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path / "project")

    @contextmanager
    def connected(_: object) -> Iterator[tuple[SimpleNamespace, None]]:
        membership = SimpleNamespace(members=(), master=None)
        yield SimpleNamespace(cluster=SimpleNamespace(name="demo"), membership=membership), None

    monkeypatch.setattr(pull, "connect_to_master", connected)
    monkeypatch.setattr(pull, "choose_node", lambda *_, **__: None)
    monkeypatch.setattr(pull, "remote_tar", lambda *_, **__: None)
    monkeypatch.setattr(pull, "download", lambda _, __, local, **___: Download(path=Path(local), files=1, size=1))


def test_warns_of_results_that_run_would_send_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "project/runs", "runs"]) == 0
    advice = "pull to a place outside, or name it in .gitignore"
    assert capsys.readouterr().err == f"dlcluster: run and push from here will send runs: {advice}\n"
    assert main(["pull", "project/runs", "../results"]) == 0
    assert capsys.readouterr().err == ""


def test_files_that_were_replaced_or_kept_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def download(*_: object, differing: Differing, overwrites: bool) -> Download:
        if not overwrites:
            differing.replaced += [Path("a"), Path("b\x1b")]
            differing.kept += map(Path, "cdef")
        return Download(path=Path("../results"))

    monkeypatch.setattr(pull, "download", download)
    assert main(["pull", "project/runs", "../results"]) == 1
    replaced, kept = capsys.readouterr().err.splitlines()
    assert replaced == "dlcluster: replaced 2 files (a, b ), which differed"
    assert kept == (
        "dlcluster: kept 4 files (c, d, e, ...): newer here than on master, and different; "
        "pull to another place, or give --overwrite"
    )
    assert main(["pull", "project/runs", "../results", "--overwrite"]) == 0
    capsys.readouterr()
    assert main(["pull", "project/runs", "../results", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["replaced"], document["kept"]) == (["a", "b\x1b"], ["c", "d", "e", "f"])


def test_replaced_files_are_named_even_if_the_connection_breaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, differing: Differing, **__: object) -> Download:
        differing.replaced.append(Path("a"))
        raise ClusterError("the connection broke")

    monkeypatch.setattr(pull, "download", broken)
    assert main(["pull", "project/runs", "../results"]) == 1
    replaced, error = capsys.readouterr().err.splitlines()
    assert replaced == "dlcluster: replaced 1 file (a), which differed"
    assert error.endswith("the connection broke")


@pytest.mark.parametrize(
    ("local", "file"), [("runs/1/", "runs/1"), ("runs/1/new", "runs/1"), ("runs/1/a/b/", "runs/1")]
)
def test_file_in_place_of_a_directory_is_refused_before_the_connection(
    local: str, file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(pull, "connect_to_master")
    assert main(["pull", "project/runs", local]) == 2
    advice = f"{file} is a file, not a directory; name another destination"
    assert error_line(capsys) == f"cannot pull into {local}: {advice}"


def test_json_counts_what_came(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "project/runs", "../results", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "version": 1, "cluster": "demo", "path": "../results", "files": 1, "bytes": 1, "left_out": 0,
        "replaced": [], "kept": [],
    }  # fmt: skip


def test_name_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a\x1b[2J").touch()
    assert main(["pull", "x", "a\x1b[2J"]) == 0
    got = capsys.readouterr()
    assert "\x1b" not in got.out + got.err
    assert got.out.startswith("a [2J: 1 file, ")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("runs", "master has no ~/runs, did you mean project/runs?"),
        ("worker2:~/runs/", "worker2 has no ~/runs/, did you mean worker2:project/runs/?"),
        ("project/runs", "master has no ~/project/runs"),
        ("worker2:/data/x", "worker2 has no /data/x"),
    ],
)
def test_path_that_the_node_lacks_is_reported(
    path: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object, **__: object) -> Download:
        raise ClusterError("tar: runs: Cannot stat: No such file or directory")

    monkeypatch.setattr(pull, "download", missing)
    assert main(["pull", path]) == 1
    assert error_line(capsys) == message
