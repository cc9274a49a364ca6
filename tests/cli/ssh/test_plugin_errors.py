"""Test which lines of the session-manager-plugin become part of an error."""

import sys

import pytest

from cli.errors import ClusterError, UsageError
from cli.ssh.master_connection import SshTarget, run_command
from cli.ssh.session_manager import PluginCall, session_socket


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_plugins_own_reason_is_part_of_the_error(stream: str) -> None:
    """AWS's plugin prints the reason to its standard output, the local AWS's to its standard error."""
    words = (sys.executable, "-c", f"import sys; print('Cannot perform start session: EOF', file=sys.{stream})")
    target = SshTarget(
        address="deeplearning-master",
        user="ubuntu",
        host_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBwQ0Y3S4f0Yq4V8v0y1Q9jv8t5oQ8k8yq2hJm1m3X8k",
        identity=None,
        start_session=lambda: PluginCall(command=words, environment={}),
    )
    with pytest.raises(ClusterError, match=r"server answered \(session-manager-plugin: .*start session: EOF\)"):
        run_command(target, "true", stdout_fd=1, stderr_fd=2)


@pytest.mark.parametrize(
    ("printed", "shown"),
    [("", "no job 7"), ("session closed\n", "no job 7 (session-manager-plugin: session closed)")],
)
def test_opened_session_is_no_reason(printed: str, shown: str) -> None:
    text = f"\nStarting session with SessionId: user-0123\r\n{printed}SSH-2.0-x\r\n"
    script = f"import os, time; os.write(1, {text.encode()!r}); time.sleep(60)"
    call = PluginCall(command=(sys.executable, "-c", script), environment={})
    with pytest.raises(ClusterError) as caught, session_socket(call):
        raise UsageError("no job 7")
    assert str(caught.value) == shown
    assert isinstance(caught.value, UsageError) == (not printed)
