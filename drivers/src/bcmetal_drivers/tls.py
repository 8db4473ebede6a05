"""TLS to a BMC: whom we trust, and in clear words why we do not.

A pinned certificate is compared before a byte of ours is sent. Contexts are made once for each trust: making one costs 50 ms.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
from functools import lru_cache
from typing import Final

from bcmetal_drivers.connection import Limits, Trust, TrustKind
from bcmetal_drivers.errors import DriverError, InsecureTransport, TimedOut, Unreachable, UntrustedCertificate
from bcmetal_drivers.tcp import Deadline, connect

# OpenSSL's X509_V_ERR_ codes
REASONS: Final = {
    9: "the certificate is not valid yet (or a clock is wrong)",
    10: "the certificate has expired (or a clock is wrong)",
    18: "the certificate is self-signed: pin its fingerprint",
    19: "the certificate comes from a CA that is not trusted here: give the CA, or pin the fingerprint",
    20: "the certificate comes from a CA that is not trusted here: give the CA, or pin the fingerprint",
    21: "the certificate comes from a CA that is not trusted here: give the CA, or pin the fingerprint",
    62: "the certificate is for another name",
    64: "the certificate is for another IP address",
}


@lru_cache(maxsize=256)
def context_for(trust: Trust) -> ssl.SSLContext:
    """Raises UntrustedCertificate when the CA of the trust is no PEM."""
    if trust.kind in (TrustKind.FINGERPRINT, TrustKind.NONE):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        # Factory certificates have short keys; a pin is the proof, not the signature.
        context.set_ciphers("DEFAULT:@SECLEVEL=1")
        return context
    try:
        context = ssl.create_default_context(cadata=trust.value if trust.kind is TrustKind.CA else None)
    except (ssl.SSLError, ValueError) as error:
        raise UntrustedCertificate("the CA that was given for this BMC is no PEM certificate") from error
    # sites' own CAs often lack a key identifier, on which Python 3.13 insists
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", ssl.VerifyFlags(0))
    return context


def fingerprint_of(der: bytes) -> str:
    """Its SHA-256, 64 lower-case hex digits."""
    return hashlib.sha256(der).hexdigest()


def handshake(sock: socket.socket, host: str, port: int, trust: Trust, timeout_s: float) -> tuple[ssl.SSLSocket, str]:
    """The TLS socket and the leaf's fingerprint. On failure the socket is closed.

    Raises UntrustedCertificate, InsecureTransport (no TLS there, or only an old one), TimedOut, Unreachable.
    """
    where = f"{host}:{port}"
    secure: ssl.SSLSocket | None = None
    try:
        context = context_for(trust)
        sock.settimeout(timeout_s)  # bounds the handshake as a whole, not each read
        secure = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        secure.do_handshake()
        fingerprint = fingerprint_of(secure.getpeercert(binary_form=True) or b"")
        if trust.kind is TrustKind.FINGERPRINT and not hmac.compare_digest(fingerprint, pinned(trust)):
            raise UntrustedCertificate(f"{where}: the certificate is not the pinned one, its SHA-256 is {fingerprint}")
    except DriverError:
        (secure or sock).close()
        raise
    except OSError as error:
        (secure or sock).close()
        raise _in_our_words(error, where) from error
    return secure, fingerprint


def pinned(trust: Trust) -> str:
    """The fingerprint of a trust, however people write it (upper case, with colons)."""
    return trust.value.replace(":", "").replace(" ", "").lower()


def _in_our_words(error: OSError, where: str) -> DriverError:
    if isinstance(error, TimeoutError):
        return TimedOut(f"{where}: the TLS handshake did not end in time")
    if isinstance(error, ssl.SSLCertVerificationError):
        why = REASONS.get(error.verify_code, error.verify_message)
        return UntrustedCertificate(f"{where}: {why}")
    reason = getattr(error, "reason", None) or ""
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"):
        return InsecureTransport(f"{where}: the port does not speak TLS")
    if reason in ("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "NO_CIPHERS_AVAILABLE", "DH_KEY_TOO_SMALL"):
        return InsecureTransport(f"{where}: the BMC offers only a TLS that is too old ({reason})")
    if reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":
        return InsecureTransport(f"{where}: no TLS version or cipher in common")
    return Unreachable(f"{where}: the TLS handshake was cut off")


def fetch_fingerprint(host: str, port: int, limits: Limits) -> str:
    """The SHA-256 of the certificate that is shown there now. Sends nothing but the handshake; raises what a connection raises."""
    deadline = Deadline(limits.total_s)
    sock = connect(host, port, limits, deadline)
    budget = deadline.left(limits.connect_s + limits.read_s, f"{host}:{port}")
    secure, fingerprint = handshake(sock, host, port, Trust(TrustKind.NONE), budget)
    secure.close()
    return fingerprint
