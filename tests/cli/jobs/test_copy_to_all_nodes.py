"""Test that push uses no GPU."""

from collections.abc import Iterable
from typing import cast

from cli.files.upload import Upload
from cli.jobs.start import copy_to_all_nodes
from cli.ssh.remote import MasterConnection, Output


def test_files_reach_every_node_without_a_gpu() -> None:
    ran: list[str] = []

    class Master:
        def output(self, command: str, *, chunks: Iterable[bytes] = ()) -> Output:
            ran.append(command)
            return Output(exit_code=0, stdout=b"", stderr="")

    copy_to_all_nodes(
        cast(MasterConnection, Master()), Upload(name="my-job", files=1, size=1, sent_files=1, sent_size=1)
    )
    line = "launch --sync-dst-dir my-job --nproc-per-node 1 --env CUDA_VISIBLE_DEVICES: true"
    assert ran == [f"cd && cd .cache/deeplearning/push/my-job && {line}"]
