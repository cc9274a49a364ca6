"""Issue certificates for mount targets, from an authority that nodes trust as they trust Amazon's."""

import ssl
import subprocess
from pathlib import Path
from typing import Final

DIRECTORY: Final = "certificates"
"""Directory of the authority and the certificates, in the run's directory."""
_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30")
_OPENSSL_TIMEOUT_S: Final = 30


class Authority:
    """A certificate authority of one run."""

    def __init__(self, run_dir: Path) -> None:
        self._directory = run_dir / DIRECTORY
        self._key, self.certificate = self._directory / "authority.key", self._directory / "authority.pem"
        self._trusted_name = ""

    def trust(self, disk: Path) -> None:
        """Make a node trust the authority: OpenSSL looks for a file named after the subject's hash."""
        self._make()
        path = disk / "etc/ssl/certs" / self._trusted_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.certificate.read_bytes())

    def server_context(self, host: str) -> ssl.SSLContext:
        """Return the TLS context of a server of that name."""
        self._make()
        key, certificate = self._directory / f"{host}.key", self._directory / f"{host}.pem"
        if not certificate.exists():
            # A subject has at most 64 characters; the alternative name is the one that counts.
            names = ("-subj", "/CN=mount target", "-addext", f"subjectAltName=DNS:{host}")
            issuer = ("-CA", self.certificate, "-CAkey", self._key)
            _openssl("req", "-x509", *_NEW_KEY, *names, *issuer, "-keyout", key, "-out", certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context

    def _make(self) -> None:
        if self._trusted_name:
            return
        self._directory.mkdir(exist_ok=True)
        name = ("-subj", "/CN=authority of the local AWS")
        _openssl("req", "-x509", *_NEW_KEY, *name, "-keyout", self._key, "-out", self.certificate)
        self._trusted_name = f"{_openssl('x509', '-hash', '-noout', '-in', self.certificate).strip()}.0"


def _openssl(*arguments: str | Path) -> str:
    command = ["openssl", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_OPENSSL_TIMEOUT_S).stdout
