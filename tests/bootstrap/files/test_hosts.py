"""Test the lines of the hosts file and of the workers file."""

from bootstrap.files.hosts import hosts_lines
from bootstrap.files.workers import workers_file
from tests.bootstrap.identities import MEMBERS


def test_hosts_lines_are_ordered_by_index() -> None:
    assert hosts_lines(MEMBERS) == (
        "10.0.0.100 deeplearning-master deeplearning-worker1\n"
        "10.0.1.20 deeplearning-worker2\n"
        "10.0.1.9 deeplearning-worker10\n"
    )


def test_node_may_have_a_further_name() -> None:
    lines = hosts_lines(MEMBERS, extra_names={MEMBERS[0].node_index: "ip-10-0-0-4"}).splitlines()
    assert [line.endswith(" ip-10-0-0-4") for line in lines].count(True) == 1
    assert next(line for line in lines if line.endswith("ip-10-0-0-4")).startswith(f"{MEMBERS[0].address} ")


def test_workers_file_has_one_alias_a_line() -> None:
    assert workers_file(MEMBERS) == ("deeplearning-worker1\ndeeplearning-worker2\ndeeplearning-worker10\n")
