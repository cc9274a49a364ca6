"""What launch says of a command that cannot be run."""

import pytest

from launcher.job.exit_hints import exit_hint
from tests.launcher.conftest import Cluster

LINE = ("/bin/bash", "-c")


@pytest.mark.parametrize(
    ("code", "command", "said"),
    [
        (127, (*LINE, "lst"), ": no command lst, did you mean launch list?"),
        (127, ("stat-us", "j"), ": no command stat-us, did you mean launch status?"),
        (127, (*LINE, "ls-files"), ""),
        (127, (*LINE, "true; lst"), ""),
        (127, (*LINE, "'"), ""),
        (126, ("/opt/t", "--lr", "1"), ": if Python is to run /opt/t: launch python /opt/t"),
        (126, ("python", "x.py"), ""),
        (1, (*LINE, "lst"), ""),
        (137, ("python", "x.py"), ": killed, as the kernel does where memory runs out"),
        (143, ("python", "x.py"), ""),
    ],
)
def test_advice_is_for_an_exit_code_that_alone_leads_nowhere(code: int, command: tuple[str, ...], said: str) -> None:
    assert exit_hint(code, command) == said


def test_a_directory_and_a_slip_of_a_verb_are_answered(cluster: Cluster) -> None:
    directory = cluster.run("-n", "1", str(cluster.directory))
    assert directory.code == 126
    assert directory.reason.endswith(f"126: if Python is to run {cluster.directory}: launch python {cluster.directory}")
    slip = cluster.run("-n", "1", "lst")
    assert slip.code == 127
    assert slip.reason.endswith(" ended with exit code 127: no command lst, did you mean launch list?")
