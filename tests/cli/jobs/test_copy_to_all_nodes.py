"""Test that push uses no GPU, and its report."""

import json
from collections.abc import Iterable
from typing import cast

import pytest

from cli.commands.jobs import push
from cli.errors import ClusterError
from cli.files.upload import Upload
from cli.jobs.start import copy_to_all_nodes
from cli.main import main
from cli.ssh.master_connection import CommandResult, MasterConnection
from launcher.sync.request import IGNORE_FILE
from tests.cli.jobs.master import SENT, Master


def test_files_reach_every_node_without_a_gpu() -> None:
    ran: list[str] = []

    class Master:
        def output(self, command: str, *, chunks: Iterable[bytes] = ()) -> CommandResult:
            ran.append(command)
            return CommandResult(exit_code=0, stdout=b"", stderr="")

    copy_to_all_nodes(
        cast(MasterConnection, Master()), Upload(name="my-job", files=1, size=1, sent_files=1, sent_size=1)
    )
    line = "launch --sync-dst-dir my-job --nproc-per-node 1 --env CUDA_VISIBLE_DEVICES: true"
    assert ran == [f"cd && cd .cache/deeplearning/push/my-job && {line}"]


def test_advice_of_a_refused_copy_is_for_the_laptop() -> None:
    reason = (
        "launch: nothing started: the copy to src would overwrite files that were changed there: 'x' on w2; "
        f"pull them into this directory, exclude them in {IGNORE_FILE}, or give --sync-overwrite\n"
    )

    class Master:
        def output(self, _command: str) -> CommandResult:
            return CommandResult(exit_code=1, stdout=b"", stderr=reason)

    sent = Upload(name="my-job", files=1, size=1, sent_files=1, sent_size=1)
    with pytest.raises(ClusterError) as caught:
        copy_to_all_nodes(cast(MasterConnection, Master()), sent)
    assert str(caught.value).endswith("'x' on w2; name them in .gitignore if jobs write them, or give --sync-overwrite")


def test_json_counts_what_was_sent(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(push, "upload", lambda *_, **__: SENT)
    master.set_answer("launch list", "[]")
    master.set_answer("launch --sync-dst-dir my-job")
    assert main(["push", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "version": 1, "cluster": "demo", "directory": "~/my-job",
        "files": 3, "bytes": 30, "sent_files": 2, "sent_bytes": 20,
    }  # fmt: skip
