"""Test dlcluster's report on different releases."""

from dataclasses import replace

import pytest

from cli.aws.nodes import ClusterNode
from cli.errors import ClusterError
from cli.reports.releases import check_secrets_are_known, release_lines

NODE = ClusterNode(
    node_index=1, instance_id="i-1", address="10.0.0.1", node_type="master", host_key="", release="0.2.0:abc"
)
WORKER = replace(NODE, node_index=2, node_type="worker")
REPLACE = "dlcluster pause and resume replace the nodes"


def release_line(stack: str, *releases: str, here: str = "0.2.0") -> str:
    nodes = [replace(WORKER, node_index=number + 2, release=release) for number, release in enumerate(releases)]
    [line] = release_lines([NODE, *nodes], stack=stack, here=here)
    assert "\n" not in line
    return line.removeprefix("releases differ: dlcluster ")


def test_status_has_no_release_line_if_all_releases_are_equal() -> None:
    assert release_lines([NODE, WORKER], stack="0.2.0:abc", here="0.2.0") == []
    assert release_lines([], stack="0.2.0:abc", here="0.2.0") == []


def test_nodes_that_are_about_to_end_do_not_count() -> None:
    leaving = replace(WORKER, release="0.1.0:0", draining=True)
    assert release_lines([NODE, leaving], stack="0.2.0:abc", here="0.2.0") == []


def test_nodes_of_another_bundle_are_named() -> None:
    message = release_line("0.2.0:abc", "0.2.0:def", "0.1.0:0", "")
    others = "worker2 0.2.0 (def), worker3 0.1.0 (0), worker4 of an earlier release"
    assert message == f"0.2.0, stack 0.2.0 (abc), {others}: {REPLACE}"
    assert ", 5 nodes 0.1.0 (0): " in release_line("0.2.0:abc", *["0.1.0:0"] * 5)


@pytest.mark.parametrize(
    ("here", "advice"),
    [
        ("0.10.0", f"cdk deploy brings the stack up to this one; {REPLACE}"),
        ("0.1.9", "update dlcluster on this machine"),
    ],
)
def test_release_line_advises_to_update_the_older_side(here: str, advice: str) -> None:
    assert release_line("0.2.0:abc", here=here) == f"{here}, stack 0.2.0 (abc): {advice}"


def test_stack_that_names_no_release_is_older() -> None:
    assert release_line("").startswith("0.2.0, stack of an earlier release, master 0.2.0 (abc): cdk deploy brings")


def test_secrets_are_refused_for_nodes_of_an_earlier_release() -> None:
    check_secrets_are_known([NODE, WORKER, replace(WORKER, draining=True, release="")])
    with pytest.raises(ClusterError, match=r"^--secret needs nodes of this release, and worker2 run an earlier one: "):
        check_secrets_are_known([NODE, replace(WORKER, release="")])
