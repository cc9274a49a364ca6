"""Parse the values of options; the errors name what is allowed and what was given."""

import argparse
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def parse_gpus(text: str) -> tuple[int, ...]:
    """Parse the numbers of GPUs, such as 0,1; none is empty."""
    words = text.split(",") if text.strip() else []
    if not all(word.strip().isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"must be numbers such as 0,1, got {text!r}")
    return tuple(int(word) for word in words)


def number(kind: type[Number], allowed: str) -> Callable[[str], Number]:
    """Return a parser of numbers whose error says which are ``allowed``."""

    def parse_number(text: str) -> Number:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be {allowed}, got {text!r}") from None

    return parse_number


def parse_switch(text: str) -> bool:
    """Parse 0 or 1."""
    if text not in ("0", "1"):
        raise argparse.ArgumentTypeError(f"must be 0 or 1, got {text!r}")
    return text == "1"


def parse_epochs(text: str) -> tuple[int, ...]:
    """Parse epochs such as 30,60."""
    words = text.split(",") if text.strip() else []
    if not all(word.strip().isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"must be numbers such as 30,60, got {text!r}")
    return tuple(int(word) for word in words)


def parse_steps(text: str) -> tuple[int, int]:
    """Parse the first and the last step, such as 10-12."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be the first and the last step such as 10-12, got {text!r}")
    return int(first), int(last)


def parse_shape(text: str) -> tuple[int, ...]:
    """Parse channels, height and width, such as 3,32,32."""
    words = text.split(",")
    if len(words) != 3 or not all(word.strip().isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"must be channels, height and width such as 3,32,32, got {text!r}")
    return tuple(int(word) for word in words)
