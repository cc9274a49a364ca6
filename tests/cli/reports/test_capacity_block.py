"""Test the report on a Capacity Block's times, which an output of the stack contains."""

from datetime import datetime, timezone

import pytest

from cli.reports.capacity_block import parse_deployed_block

OUTPUT = "cr-0123456789abcdef0 2026-12-01T11:30:00Z 2026-12-02T10:50:00Z 2026-12-02T11:30:00Z"
NAME = "Capacity Block cr-0123456789abcdef0"


@pytest.mark.parametrize(
    ("now", "line"),
    [
        ((1, 10, 0), f"{NAME} starts in 1 h 30 min, at 2026-12-01T11:30:00Z; AWS starts the nodes then"),
        (
            (2, 9, 50),
            f"{NAME}: AWS pauses the cluster in 1 h 0 min, at 2026-12-02T10:50:00Z, and the block ends at "
            "2026-12-02T11:30:00Z",
        ),
        (
            (2, 10, 50),
            f"{NAME} is over for this cluster since 2026-12-02T10:50:00Z: set capacity_reservation to the next one in "
            "cdk.json, then cdk deploy",
        ),
    ],
)
def test_block_line_names_the_next_start_or_end(now: tuple[int, int, int], line: str) -> None:
    block = parse_deployed_block(OUTPUT)
    assert block is not None
    assert block.line(datetime(2026, 12, *now, tzinfo=timezone.utc)) == line


@pytest.mark.parametrize("text", [None, "", "cr-0123456789abcdef0 now later never", "x"])
def test_unreadable_block_output_is_ignored(text: str | None) -> None:
    assert parse_deployed_block(text) is None
