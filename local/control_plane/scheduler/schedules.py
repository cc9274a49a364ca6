"""Run the schedules of stacks: call their target as their role, at their start and then at their rate.

The call passes through this server like any other, so that the role's policy is evaluated. Only what the product uses
is implemented: rates with a start, times of the year with an end, and targets that call an API ("Using universal
targets", EventBridge Scheduler User Guide).
"""

import json
import logging
import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import boto3
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

log = logging.getLogger(__name__)

_RATE: Final = re.compile(r"rate\((?P<count>[1-9][0-9]*) (?P<unit>minute|hour|day)s?\)")
_YEARLY: Final = re.compile(r"cron\((?P<minute>\d+) (?P<hour>\d+) (?P<day>\d+) (?P<month>\d+) \? \*\)")
_TARGET: Final = re.compile(r"arn:[^:]+:scheduler:::aws-sdk:(?P<service>[a-z0-9]+):(?P<action>[A-Za-z0-9]+)")
_UNIT_S: Final[dict[str, float]] = {"minute": 60, "hour": 3600, "day": 86400}
"""Seconds of each unit of a rate. ``set_minute_length`` shortens the minute alone, so that tests need not wait long."""
LATEST_START: Final = timedelta(minutes=5)
"""Longest time by which a start may lie in the past ("CreateSchedule", EventBridge Scheduler API Reference)."""
_ENDPOINT: list[str] = []


class ScheduleError(Exception):
    """A schedule cannot be created."""


def serve_at(url: str) -> None:
    """Set this server's address, to which schedules send the calls of their targets."""
    _ENDPOINT[:] = [url]


def set_minute_length(seconds: float) -> None:
    """Set the seconds of a minute in ``rate(N minutes)``; other times, such as StartDate, are real."""
    _UNIT_S["minute"] = seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleTarget:
    """The API call of a schedule."""

    service: str
    action: str
    role: str
    parameters: Mapping[str, Any]

    def call(self, region: str) -> None:
        """Make the call with the role's permissions."""
        [url] = _ENDPOINT
        endpoint = {"region_name": region, "endpoint_url": url}
        administrator = {"aws_access_key_id": "scheduler", "aws_secret_access_key": "scheduler"}
        sts: Any = boto3.client("sts", **endpoint, **administrator)  # type: ignore[call-overload]
        issued = sts.assume_role(RoleArn=self.role, RoleSessionName="schedule")["Credentials"]
        keys = {
            "aws_access_key_id": issued["AccessKeyId"],
            "aws_secret_access_key": issued["SecretAccessKey"],
            "aws_session_token": issued["SessionToken"],
        }
        client: Any = boto3.client(self.service, **endpoint, **keys)  # type: ignore[call-overload]
        getattr(client, xform_name(self.action))(**self.parameters)


def _times(properties: Mapping[str, Any], now: datetime) -> tuple[datetime, float] | None:
    """Return the first time and the interval in seconds; None for an unsupported expression."""
    expression = properties["ScheduleExpression"]
    if rate := _RATE.fullmatch(expression):
        start = _time(properties["StartDate"])
        if start < now - LATEST_START:
            raise ScheduleError("The StartDate you specify cannot be earlier than 5 minutes ago.")
        return start, int(rate["count"]) * _UNIT_S[rate["unit"]]
    if (yearly := _YEARLY.fullmatch(expression)) and "EndDate" in properties:
        end = _time(properties["EndDate"])
        if end < now:
            raise ScheduleError("The EndDate you specify must come after the current time.")
        month, day, hour, minute = (int(yearly[name]) for name in ("month", "day", "hour", "minute"))
        this_year = datetime(now.year, month, day, hour, minute, tzinfo=timezone.utc)
        start = this_year if this_year >= now else this_year.replace(year=now.year + 1)
        return (start if start < end else datetime.max.replace(tzinfo=timezone.utc)), math.inf
    return None


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


class Schedule:
    """A schedule that acts until it is deleted."""

    def __init__(self, properties: Mapping[str, Any], region: str, *, now: datetime | None = None) -> None:
        target, now = _TARGET.fullmatch(properties["Target"]["Arn"]), now or datetime.now(timezone.utc)
        times = _times(properties, now)
        if times is None or target is None or properties["FlexibleTimeWindow"]["Mode"] != "OFF":
            raise ScheduleError(f"the local AWS has no such schedule: {json.dumps(properties)}")
        self._region = region
        start, self._period_s = times
        self._target = ScheduleTarget(
            service=target["service"],
            action=target["action"],
            role=properties["Target"]["RoleArn"],
            parameters=json.loads(properties["Target"]["Input"]),
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._act, args=(max((start - now).total_seconds(), 0.0),), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop acting. A call in progress finishes, because it may be the one that deletes this schedule."""
        self._ended.set()

    def _act(self, delay_s: float) -> None:
        # A wait may last some 290 years at most; a test's schedule for the year 9999 must not fail.
        while not self._ended.wait(min(delay_s, threading.TIMEOUT_MAX / 2)):
            delay_s = self._period_s
            try:
                self._target.call(self._region)
            except (ClientError, BotoCoreError) as error:
                log.warning("a schedule's call failed, the next is in %.0f s: %s", self._period_s, error)
