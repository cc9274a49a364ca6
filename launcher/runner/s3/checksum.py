"""Compare the bytes of a whole object with what S3 knows of them.

S3 keeps the CRC-32 of objects whose client sent one. The entity tag of an object is its MD5 if it was uploaded in one
piece and is not encrypted with a key of KMS (https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html).
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping
from typing import Final

MD5: Final = re.compile('"([0-9a-f]{32})"')
"""Matches the entity tag of an upload in one piece; a multipart upload's tag ends with the number of parts."""
ENCRYPTION: Final = "x-amz-server-side-encryption"
OWN_KEYS: Final = "AES256"
"""Encryption with keys of S3's own. Objects from before 2023 may have none."""


class Checksum:
    """Checksum of an arriving object: CRC-32, or else MD5, which takes longer. An object with neither passes."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        crc = headers.get("x-amz-checksum-crc32", "")
        # A checksum of parts' checksums ends with their number.
        self._wanted_crc = None if "-" in crc or not crc else int.from_bytes(base64.b64decode(crc), "big")
        self._crc = 0
        tag = MD5.fullmatch(headers.get("ETag", "")) if headers.get(ENCRYPTION, OWN_KEYS) == OWN_KEYS else None
        self._wanted_md5 = tag[1] if tag and self._wanted_crc is None else None
        self._md5 = hashlib.md5(usedforsecurity=False)

    def update(self, data: bytes) -> None:
        """Include the next bytes."""
        if self._wanted_crc is not None:
            self._crc = zlib.crc32(data, self._crc)
        elif self._wanted_md5 is not None:
            self._md5.update(data)

    def matches(self) -> bool:
        """Return False if the bytes are not those that were uploaded."""
        if self._wanted_crc is not None:
            return self._crc == self._wanted_crc
        return self._wanted_md5 is None or self._md5.hexdigest() == self._wanted_md5
