"""Define the settings that name a cluster and tag its resources."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stacks.settings.base import Settings, SettingsError, require, shown
from stacks.settings.parsing import PARSER

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}")
_TAG_TEXT: Final = re.compile(r"[\w +\-=.:/@]*")
_RESERVED_TAG_PREFIXES: Final = ("aws:", "deeplearning:")
_MAX_TAGS: Final = 40
"""Largest number of the user's tags: AWS allows 50 per resource, and the product and CloudFormation add some."""


def parse_tags(name: str, value: Any) -> dict[str, str]:
    """Parse tags from an object, from JSON or from ``k=v,k2=v2``."""
    if isinstance(value, str):
        value = _tags_from_text(name, value)
    require(isinstance(value, Mapping), name, value, "an object of names and values, or k=v,k2=v2")
    for key, text in value.items():
        require(isinstance(text, str), f"tag {shown(key)}", text, "text")
    return dict(value)


def _tags_from_text(name: str, text: str) -> Any:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_tags_from_pairs)
        except (ValueError, RecursionError):
            raise SettingsError(f"{name} must be valid JSON or k=v,k2=v2, got {shown(text)}") from None
    pairs = [pair.partition("=") for pair in text.split(",")]
    require(all(equals for _, equals, _ in pairs), name, text, "JSON or k=v,k2=v2")
    return _tags_from_pairs([(key.strip(), value.strip()) for key, _, value in pairs])


def _tags_from_pairs(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    tags: dict[str, Any] = {}
    for key, value in pairs:
        if key in tags:
            raise SettingsError(f"tag {shown(key)} must have one value, got {shown(tags[key])} and {shown(value)}")
        tags[key] = value
    return tags


@dataclass(frozen=True, kw_only=True)
class NamingSettings(Settings):
    """The name of the cluster and the tags of its resources."""

    cluster_name: str = "deeplearning"
    """Name of the stack and value of the cluster tag; two clusters in one region need two names."""
    tags: Mapping[str, str] = field(default_factory=dict, metadata={PARSER: parse_tags})
    """Further tags for everything that can carry tags."""

    def check(self) -> None:
        """Check the name and the tags against the rules of CloudFormation and IAM."""
        super().check()
        name = self.cluster_name
        require(_NAME.fullmatch(name), "cluster_name", name, "a letter, then letters, digits and hyphens, at most 63")
        require(len(self.tags) <= _MAX_TAGS, "tags", len(self.tags), f"at most {_MAX_TAGS}")
        for key, value in self.tags.items():
            _check_tag(key, value)
        _check_case(self.tags)


def _check_tag(key: str, value: str) -> None:
    require(0 < len(key) <= 128, "the name of a tag", key, "1 to 128 characters")
    # CloudFormation refuses an empty value on a stack (AWS CloudFormation API Reference, "Tag").
    require(0 < len(value) <= 256, f"tag {shown(key)}", value, "1 to 256 characters")
    for text in (key, value):
        require(_TAG_TEXT.fullmatch(text), f"tag {shown(key)}", text, "letters, digits, spaces and + - = . _ : / @")
    if key.lower().startswith(_RESERVED_TAG_PREFIXES):
        raise SettingsError(f"tag {shown(key)} has a reserved prefix: {' or '.join(_RESERVED_TAG_PREFIXES)}")


def _check_case(tags: Mapping[str, str]) -> None:
    """Refuse names that differ only in case, because IAM ignores case."""
    seen: dict[str, str] = {}
    for key in tags:
        if other := seen.get(key.lower()):
            raise SettingsError(f"tags {shown(other)} and {shown(key)} differ only in case: use one of them")
        seen[key.lower()] = key
