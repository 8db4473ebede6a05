"""The words of the configuration: what a single value may look like, and what is said of one that does not."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, PlainValidator, StringConstraints

from bcmetal_agent.ssh_keys import key_line

GIB: Final = 2**30
_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
BMC_ERASE: Final = "bmc"  # the BMC's own erase of a drive; the other methods are the agent's
AGENT_ERASES: Final = (
    *("nvme-crypto", "nvme-block", "nvme-overwrite", "ata-crypto", "ata-secure"),
    *("scsi-sanitize", "discard", "overwrite"),
)
ERASE_METHODS: Final = (BMC_ERASE, *AGENT_ERASES)


def listen(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be HOST:PORT, such as [::]:8443 or 127.0.0.1:8443")
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        raise ValueError("must be an IP address and a port, such as [::]:8443") from None
    return value


def secret_place(value: str) -> str:
    kind, _, rest = value.partition(":")
    if kind not in ("file", "credential", "sealed") or not rest:
        raise ValueError("must be file:PATH, credential:NAME or sealed:NAME; a secret itself never stands here")
    return value


def claiming(value: str) -> str:
    kind, _, name = value.partition(":")
    if kind != "claim" or not re.fullmatch(_WORD, name):
        raise ValueError("must be claim:NAME, with the name of a credential whose account is made")
    return value


def place(value: str) -> str:
    if value.startswith("sealed:"):
        raise ValueError("must be file:PATH or credential:NAME: it is needed before anything can be unsealed")
    return secret_place(value)


def trust(value: str) -> str:
    if value in ("verify", "pin-first", "off") or (value.startswith("ca:") and len(value) > 3):
        return value
    raise ValueError("must be verify, ca:FILE, pin-first or off")


def sign(value: str) -> str:
    if value in ("agent", "bootProgress", "none"):
        return value
    if value.startswith("tcp:"):
        raise ValueError("this build knows no address of the machine: use agent, bootProgress or none")
    raise ValueError("must be agent, bootProgress or none")


def cidr(value: str) -> str:
    try:
        return str(ip_network(value))
    except ValueError as error:
        raise ValueError(f"is no network in CIDR form: {error}") from None


_NAME: Final = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


_TRUST_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,253}[a-z0-9])?")


def host(value: str) -> str:
    if not _NAME.fullmatch(value.lower()):
        raise ValueError("must be a host name, or *.SUFFIX")
    return value.lower()


def spiffe_domain(value: str) -> str:
    """SPIFFE: lower-case letters, digits, dots, hyphens and underscores."""
    if not _TRUST_DOMAIN.fullmatch(value):
        raise ValueError("must be a SPIFFE trust domain: lower-case letters, digits, dots, hyphens and underscores")
    return value


def host_or_cidr(value: str) -> str:
    try:
        return str(ip_network(value))
    except ValueError:
        return host(value)


def base_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ValueError("must be http://HOST[:PORT] or https://HOST[:PORT]")
    return value.rstrip("/")


def image_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("must be an http or https address without a user name")
    return value


def regular_expression(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return value


def methods(value: object) -> object:
    """`"none"`, or a list of methods in the order of preference."""
    if value == "none":
        return value
    known = f'"none", or a list of {", ".join(ERASE_METHODS)}'
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"must be {known}")
    strange = [str(one)[:40] for one in value if one not in ERASE_METHODS]
    if strange:
        raise ValueError(f"knows no {', '.join(strange)}; it is {known}")
    return tuple(value)


def ssh_key(value: str) -> str:
    """A line as in authorized_keys, without options, whose key is one."""
    try:
        key_line(value)
    except ValueError as error:
        raise ValueError(f"is no SSH key that opens anything: {error}") from None
    return value


def bios_setting(value: object) -> bool | int | float | str:
    if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= 1024):
        return value
    raise ValueError("must be a text, a number, true or false")


def server_name(value: str) -> str:
    """A host name or an address that a certificate of ours may carry."""
    try:
        return str(ip_address(value.strip("[]")))
    except ValueError:
        return host(value)


Word = Annotated[str, StringConstraints(pattern=rf"^{_WORD}$")]
PoolId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
TenantId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]
IdentityName = Annotated[str, StringConstraints(pattern=r"^(key|cert):[^\s\x00-\x1f\x7f]{1,128}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", to_lower=True)]
Sha512 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$", to_lower=True)]
BiosName = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,255}$")]
BiosSetting = Annotated[bool | int | float | str, PlainValidator(bios_setting)]
ComponentPattern = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(regular_expression)]
Attestor = Literal["token", "discovery", "tpm"]
Erase = Annotated[tuple[str, ...] | str, BeforeValidator(methods)]
