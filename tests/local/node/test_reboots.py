"""Test the requests to reboot a node."""

import os
import time
from pathlib import Path

from local.node.reboots import DIRECTORY, clear_request, request_reboot, seconds_since_request


def test_reboot_request_keeps_its_first_time_until_done(tmp_path: Path) -> None:
    assert seconds_since_request(tmp_path, "i-1") is None
    request_reboot(tmp_path, "i-1")
    an_hour_ago = time.time() - 3600
    os.utime(tmp_path / DIRECTORY / "i-1", (an_hour_ago, an_hour_ago))
    request_reboot(tmp_path, "i-1")
    waited = seconds_since_request(tmp_path, "i-1")
    assert waited is not None
    assert 3600 <= waited < 3700
    assert seconds_since_request(tmp_path, "i-2") is None
    for _ in range(2):
        clear_request(tmp_path, "i-1")
    assert seconds_since_request(tmp_path, "i-1") is None
