"""Create one certificate per sync, with which its nodes authenticate each other.

All nodes receive its private key over their connections to the launcher. It is used once and never stored in a file.
See docs/decisions/014.
"""

import os
import ssl
import subprocess

from launcher.errors import LaunchError

OPENSSL = (
    *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
    *("-subj", "/CN=deeplearning-sync", "-days", "2", "-keyout", "-"),
)
TIMEOUT_S = 10.0
NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME: a node's clock may be wrong, and the key is new in any case."""


def new_sync_key() -> str:
    """Return a new private key and its self-signed certificate, as PEM."""
    # A site's openssl.cnf must not affect the result.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "OPENSSL_CONF": os.devnull}
    try:
        done = subprocess.run(
            OPENSSL, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"openssl created no key within {TIMEOUT_S:g} s") from error
    except OSError as error:
        raise LaunchError(f"cannot run openssl, which creates the TLS key for the sync: {error.strerror}") from error
    if done.returncode:
        raise LaunchError(f"openssl: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode("ascii")


def server_context(identity: str) -> ssl.SSLContext:
    """Return the TLS context of the node that accepts the connection."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    # A peer that only sends would never read session tickets, and would reset the connection on closing it.
    context.num_tickets = 0
    return context


def client_context(identity: str) -> ssl.SSLContext:
    """Return the TLS context of the node that connects."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, identity)


def _context(protocol: "ssl._SSLMethod", identity: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # The certificate identifies the peer; its name does not matter.
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags = ssl.VerifyFlags(context.verify_flags | NO_CHECK_TIME)
    context.load_verify_locations(cadata=identity[identity.index("-----BEGIN CERTIFICATE") :])
    # OpenSSL takes a path, and a private key must not reach a disk.
    file = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        os.write(file, identity.encode("ascii"))
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context
