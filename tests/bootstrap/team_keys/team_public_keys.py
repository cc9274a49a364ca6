"""Provide public keys of each type; their private halves do not exist."""

import base64


def security_key(kind: str, *parts: bytes) -> str:
    """Return a key as a security key makes it; its parts follow the type."""
    body = b"".join(len(part).to_bytes(4, "big") + part for part in (kind.encode(), *parts, b"ssh:"))
    return f"{kind} {base64.b64encode(body).decode()}"


ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIdYR2jyZ4Tfs6FXndCEOVXNoiu4UWvA7WTuU7rhPRWB"
ED25519_FINGERPRINT = "SHA256:/dGNAHdSB7B+M1m/xk7pTlkZjKHPvbG6pc1B22JcJ8c"
RSA = (
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCh/uNQCifBeqaQXO8QrlhbiN/1oVXcfso/v+moR+Z+A1S7O7F9IiMn5VAZRkNCxWLuZQX3d9G9Q"
    "5Q4o7EDFKzk3cfjnPwK8ILX5FqrUKK6WhYUN+itiuIawGr9IwwuGvf7zuCLA8DFlIZD0k5RTRdhDX0mO7EVk4GI1Jon9X0BU11JRiTRtqr1HsYf1bs"
    "sJURk8OzlY2IMeX3ONy6RxsDF4SfWk2b7CrbfOknJDMPKr6mTbzBRJ4J9c5Y4crh6ZGrd+vRVYtVQ8/bQkMPyie8sHLszmx6cz9/TM21TB3Ov+oIlU"
    "ZSYciwCXmZgxpH0+nMR7JIjwvqyuUVHhL+DZrGR"
)
WEAK_RSA = (
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDNtYizgfVl39NE6hsFjtUUjlGgxQ5HXiDve0G2pka/ESRRo33FWhpfGx4Z0gfxugZXJ2Zex6L1un"
    "8HeRfY5XAMj6JQOXRuzAflE6jB7yxDEzbX5leLbYDGDK3cQfYALdg05jsfNQ0lgzmuoQ6xQg9ephZj5UWPfIdAvfkMffMOtQ=="
)
"""A key of 1,024 bits."""
ECDSA = (
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBORty3lsjrYJcoh0trBFr50KBPDN/iP3uDPLwSvOBX"
    "gl7Itx+XirWIVlFCa2I3lkh/yZJNmCc9zlnBA+dLVOT1k="
)
ECDSA_521 = (
    "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBACmvVCvTOADNEpG0e69hvIsWM2O6d/ID0WrT6rDcG"
    "0MR6Bhx1selzWvIX1ay/PQp9bdZ0WpTrK9hbwxKriXH0ilIwCTjNclhD9HZY1f1dF6woex4LcS46AF4hNWJrZ34aAo7y8sjCeFlhMdW3q3ozLsdlwtXdzD"
    "g7C+a2YW6yb0gIJtQw=="
)
EVERY_TYPE = (
    ED25519,
    RSA,
    ECDSA,
    ECDSA_521,
    security_key("sk-ssh-ed25519@openssh.com", b"k" * 32),
    security_key("sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", b"\x04" + b"p" * 64),
)
