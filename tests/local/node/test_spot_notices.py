"""Test the notices of spot interruptions in a node's metadata."""

import json
from datetime import datetime, timezone
from pathlib import Path

from local.node.spot_notices import announce_interruption, forget, interruption_time, recommend_rebalance

AT = datetime(2026, 11, 21, 12, 0, 30, tzinfo=timezone.utc)


def test_interruption_notice_matches_ec2s_wording(tmp_path: Path) -> None:
    assert interruption_time(tmp_path, "i-1") is None
    announce_interruption(tmp_path, "i-1", at=AT)
    notice = tmp_path / "notices/i-1/spot-instance-action"
    assert json.loads(notice.read_text()) == {"action": "terminate", "time": "2026-11-21T12:00:30Z"}
    assert interruption_time(tmp_path, "i-1") == AT
    assert interruption_time(tmp_path, "i-2") is None


def test_rebalance_recommendation_terminates_nothing(tmp_path: Path) -> None:
    recommend_rebalance(tmp_path, "i-1", now=AT)
    recommendation = tmp_path / "notices/i-1/rebalance-recommendation"
    assert json.loads(recommendation.read_text()) == {"noticeTime": "2026-11-21T12:00:30Z"}
    assert interruption_time(tmp_path, "i-1") is None


def test_notices_are_removed_with_their_instance(tmp_path: Path) -> None:
    announce_interruption(tmp_path, "i-1", at=AT)
    recommend_rebalance(tmp_path, "i-1", now=AT)
    for _ in range(2):
        forget(tmp_path, "i-1")
    assert not (tmp_path / "notices/i-1").exists()
