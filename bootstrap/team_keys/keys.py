"""Parse and render the team's SSH keys; the functions are pure.

In records, a list of keys is one text: type, key and name of each, separated by single spaces. Nodes write checked keys
to a file that sshd reads, so a key has no options, and no part contains a space or a control character.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MAX_TEXT: Final = 4096
"""Largest list of keys in characters: about 40 ed25519 keys, or 9 RSA keys of 2,048 bits."""
MIN_RSA_BITS: Final = 2048
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
NAME_FORM: Final = "1 to 64 letters, digits and . _ @ + -"

TAG: Final = "deeplearning:ssh-keys"
"""Tag of the master's group: SHA-256 of the list; numbered tags contain the list's parts."""
TAG_LENGTH: Final = 256
"""Longest value of a tag of a group (Amazon EC2 Auto Scaling API Reference, "Tag")."""

_SEPARATOR: Final = ":"
"""Separator of words in tags, because a part could begin or end with a space, which AWS need not preserve."""
_MAX_SHOWN: Final = 60
_ED25519_BYTES: Final = 32
_POINT_BYTES: Final[Mapping[bytes, int]] = {b"nistp256": 65, b"nistp384": 97, b"nistp521": 133}
"""Length of an uncompressed point on each curve (RFC 5656, section 3.1)."""


class KeyListError(ValueError):
    """A list of keys cannot be used; the message is one line without control characters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TeamKey:
    """One public key and its name."""

    type: str
    body: str
    """The key itself, in base64."""
    name: str

    @property
    def line(self) -> str:
        """Return the key in the format of authorized_keys."""
        return f"{self.type} {self.body} {self.name}"

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint in the form that sshd logs."""
        digest = hashlib.sha256(base64.b64decode(self.body)).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def check_key(key: TeamKey) -> TeamKey:
    """Return the key if its name, type and parts are valid. Raises KeyListError."""
    if not NAME.fullmatch(key.name):
        raise KeyListError(f"name of a key must be {NAME_FORM}, got {_shown(key.name)}")
    if key.type not in TYPES:
        raise KeyListError(f"type of key {key.name} must be one of {', '.join(TYPES)}, got {_shown(key.type)}")
    parts = _parts(key.body)
    if parts is None or parts[0] != key.type.encode():
        raise KeyListError(f"key {key.name} must be a whole {key.type} key, got {_shown(key.body)}")
    if not TYPES[key.type](parts[1:]):
        least = f" of at least {MIN_RSA_BITS} bits" if key.type == "ssh-rsa" else ""
        raise KeyListError(f"key {key.name} must be a valid {key.type} key{least}, got {_shown(key.body)}")
    return key


def check_team_keys(keys: Sequence[TeamKey]) -> None:
    """Check that names and keys are distinct and that the list is short enough. Raises KeyListError."""
    for what, values in (("name of a key", [key.name for key in keys]), ("key", [key.body for key in keys])):
        repeated = [value for number, value in enumerate(values) if value in values[:number]]
        if repeated:
            raise KeyListError(f"{what} must be unique, got {_shown(repeated[0])} more than once")
    if (length := len(render(keys))) > MAX_TEXT:
        raise KeyListError(f"the keys must take at most {MAX_TEXT} characters with their names, got {length}")


def parse(text: str) -> tuple[TeamKey, ...]:
    """Parse a list of keys. Raises KeyListError if any is bad."""
    if len(text) > MAX_TEXT:
        raise KeyListError(f"the keys must take at most {MAX_TEXT} characters with their names, got {len(text)}")
    words = text.split(" ") if text else []
    if len(words) % 3:
        raise KeyListError(f"the keys must be types, keys and names, got {_shown(text)}")
    rows = [words[start : start + 3] for start in range(0, len(words), 3)]
    keys = tuple(check_key(TeamKey(type=kind, body=body, name=name)) for kind, body, name in rows)
    check_team_keys(keys)
    return keys


def render(keys: Iterable[TeamKey]) -> str:
    """Render a list of keys for tags and records."""
    return " ".join(key.line for key in keys)


def to_tags(keys: Sequence[TeamKey]) -> dict[str, str]:
    """Render a list of keys as tags of the master's group; no keys give no tags."""
    text = render(keys).replace(" ", _SEPARATOR)
    parts = [text[start : start + TAG_LENGTH] for start in range(0, len(text), TAG_LENGTH)]
    numbered = {f"{TAG}:{number:02}": part for number, part in enumerate(parts, 1)}
    return {TAG: _digest(text), **numbered} if text else {}


def from_tags(tags: Mapping[str, str]) -> str:
    """Return the list of keys in the tags of the master's group; empty if there are none. Raises KeyListError.

    The hash shows whether all parts belong to one list: CloudFormation may change one tag before another.
    """
    text = "".join(tags[name] for name in sorted(tags) if name.startswith(f"{TAG}:"))
    if TAG not in tags:
        if text:
            raise KeyListError(f"tags {TAG} must hold one list of keys, got parts without their hash")
        return ""
    if _digest(text) != tags[TAG]:
        raise KeyListError(f"tags {TAG} must hold one list of keys, got parts of two")
    return render(parse(text.replace(_SEPARATOR, " ")))


def _shown(text: str) -> str:
    """Render text of any origin for a message: short printable ASCII."""
    shown = ascii(text[:_MAX_SHOWN])
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[: _MAX_SHOWN - 3]}..."


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _parts(body: str) -> list[bytes] | None:
    """Split a key into its parts, each preceded by its length (RFC 4251, section 5); None if it is incomplete."""
    try:
        left = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return None
    if base64.b64encode(left).decode() != body:
        return None
    parts: list[bytes] = []
    while left:
        end = 4 + int.from_bytes(left[:4], "big")
        if len(left) < end:
            return None
        parts.append(left[4:end])
        left = left[end:]
    return parts or None


def _is_ed25519(parts: list[bytes]) -> bool:
    return len(parts) == 1 and len(parts[0]) == _ED25519_BYTES


def _is_rsa(parts: list[bytes]) -> bool:
    return len(parts) == 2 and int.from_bytes(parts[1], "big").bit_length() >= MIN_RSA_BITS


def _is_ecdsa(curve: bytes) -> Callable[[list[bytes]], bool]:
    return lambda parts: len(parts) == 2 and parts[0] == curve and len(parts[1]) == _POINT_BYTES[curve]


def _is_on_a_security_key(is_valid: Callable[[list[bytes]], bool]) -> Callable[[list[bytes]], bool]:
    """Return a check for a security key, whose last part names the application (OpenSSH, PROTOCOL.u2f)."""
    return lambda parts: len(parts) > 1 and is_valid(parts[:-1])


TYPES: Final[Mapping[str, Callable[[list[bytes]], bool]]] = {
    "ssh-ed25519": _is_ed25519,
    "ssh-rsa": _is_rsa,
    **{f"ecdsa-sha2-{curve.decode()}": _is_ecdsa(curve) for curve in _POINT_BYTES},
    "sk-ssh-ed25519@openssh.com": _is_on_a_security_key(_is_ed25519),
    "sk-ecdsa-sha2-nistp256@openssh.com": _is_on_a_security_key(_is_ecdsa(b"nistp256")),
}
"""Types of keys, each with the function that checks the parts after the type."""
