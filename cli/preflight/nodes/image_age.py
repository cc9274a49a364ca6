"""Check how old the image is, and whether AWS still patches it; none of this fails a deploy."""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from cli.preflight.finding import Finding, warning
from stacks.catalog.deep_learning_ami import end_of_patch

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import ImageTypeDef

OLD: Final = timedelta(days=90)
"""Age from which an image lacks patches; AWS publishes one of each family every few weeks."""


def age(found: "ImageTypeDef", *, today: date, renew_fix: str, other_family_fix: str) -> Iterator[Finding]:
    """Report the most serious consequence of the image's age.

    ``renew_fix`` is the advice for a newer image of the same family, ``other_family_fix`` for one of another family.
    """
    ami, name = found.get("ImageId", ""), found.get("Name", "")
    created, deprecated = _day(found.get("CreationDate")), _day(found.get("DeprecationTime"))
    ended = end_of_patch(name)
    if ended and ended[1] < today:
        yield warning(
            "AMI", f"{ami} ({name}) gets no patches: those of {ended[0]} ended on {ended[1]}", other_family_fix
        )
    elif deprecated and deprecated <= today:
        yield warning("AMI", f"{ami} is deprecated since {deprecated} and may be withdrawn at any time", renew_fix)
    elif created and today - created > OLD:
        yield warning(
            "AMI", f"{ami} was made on {created}, {(today - created).days} days ago, and lacks later patches", renew_fix
        )


def _day(time: str | None) -> date | None:
    """Return the day of a time in EC2's format, 2026-05-02T00:00:00.000Z."""
    return date.fromisoformat(time[:10]) if time else None
