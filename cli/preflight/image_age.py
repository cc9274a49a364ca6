"""Check how old the image is, and whether AWS still patches it; none of this fails a deploy."""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from cli.preflight.finding import Finding, warning
from stacks.settings.deep_learning_ami import end_of_patch

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import ImageTypeDef

OLD: Final = timedelta(days=90)
"""Age after which an image lacks patches: AWS publishes one of each line every few weeks."""


def age(found: "ImageTypeDef", *, today: date, renew: str, later: str) -> Iterator[Finding]:
    """Report the worst consequence of the image's age.

    ``renew`` is the way to a newer image of its line, ``later`` to one of another line.
    """
    ami, name = found.get("ImageId", ""), found.get("Name", "")
    created, deprecated = _day(found.get("CreationDate")), _day(found.get("DeprecationTime"))
    ended = end_of_patch(name)
    if ended and ended[1] < today:
        yield warning("AMI", f"{ami} ({name}) gets no patches: those of {ended[0]} ended on {ended[1]}", later)
    elif deprecated and deprecated <= today:
        yield warning("AMI", f"{ami} is deprecated since {deprecated} and may be withdrawn at any time", renew)
    elif created and today - created > OLD:
        yield warning(
            "AMI", f"{ami} is of {created}, {(today - created).days} days old, and lacks later patches", renew
        )


def _day(time: str | None) -> date | None:
    """Return the day of a time as EC2 writes it, 2026-05-02T00:00:00.000Z."""
    return date.fromisoformat(time[:10]) if time else None
