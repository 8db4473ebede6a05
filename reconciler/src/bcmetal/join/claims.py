"""What a machine says of itself, made comparable. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bcmetal.errors import Fault, InvalidInput
from bcmetal.placeholders import (
    clean,
    normal_mac,
    normal_serial,
    normal_uuid,
    usable_mac,
    usable_serial,
    usable_uuid,
)
from bcmetal.settings import Placeholders
from bcmetal.store.members import Said
from bcmetal_agent.wire import Identifiers

_GPU: Final = re.compile(r"GPU-[0-9A-Fa-f-]{8,64}")
EXPECTED: Final = (("productUuid", "uuid"), ("serial", "serial"), ("mac", "mac"), ("gpuUuid", "gpu"))


@dataclass(frozen=True, slots=True)
class Claim:
    """`sha256`: of the message's identifiers and, with a TPM, its EK; what a retry must repeat. `doc`: as they were said."""

    said: tuple[Said, ...]
    sha256: str
    doc: Mapping[str, Any]

    @property
    def usable(self) -> frozenset[tuple[str, str]]:
        return frozenset((one.kind, one.value_norm) for one in self.said if one.usable)

    def has_usable(self, kind: str) -> bool:
        return any(one.usable and one.kind == kind for one in self.said)


def claim_of(message: Identifiers, ek_sha256: str | None, extra: Placeholders) -> Claim:
    """Raises InvalidInput for what is no identifier at all; a placeholder is an identifier that is not usable."""
    faults = list(_faults(message))
    if faults:
        raise InvalidInput(faults)
    said: dict[tuple[str, str], Said] = {}
    for one in _said(message, extra):
        said.setdefault((one.kind, one.value_norm), one)
    doc = {
        "productUuid": message.product_uuid,
        "serial": message.serial,
        "macs": list(message.macs),
        "gpuUuids": list(message.gpu_uuids),
    }
    text = json.dumps([doc, ek_sha256], sort_keys=True, separators=(",", ":"))
    return Claim(tuple(said.values()), hashlib.sha256(text.encode()).hexdigest(), doc)


def expectation(expect: Mapping[str, Any], extra: Placeholders) -> dict[str, tuple[str, bool]]:
    """Kind → normal value and whether it is usable, for what a token's `expect` names."""
    found: dict[str, tuple[str, bool]] = {}
    for name, kind in EXPECTED:
        if expect.get(name) is not None:
            found[kind] = _normal(kind, str(expect[name]), extra)
    return found


def pin_matches(expect: Mapping[str, Any], claim: Claim, extra: Placeholders) -> bool:
    """Every identifier that is named must be among the usable ones of the claim."""
    return all(usable and (kind, value) in claim.usable for kind, (value, usable) in expectation(expect, extra).items())


def _said(message: Identifiers, extra: Placeholders) -> Iterator[Said]:
    texts: list[tuple[str, str]] = []
    if message.product_uuid:
        texts.append(("uuid", message.product_uuid))
    if message.serial:
        texts.append(("serial", message.serial))
    texts += [("mac", text) for text in message.macs]
    texts += [("gpu", text) for text in message.gpu_uuids]
    for kind, text in texts:
        value, usable = _normal(kind, text, extra)
        yield Said(kind, value, clean(text), usable)


def _normal(kind: str, text: str, extra: Placeholders) -> tuple[str, bool]:
    if kind == "uuid":
        uuid = normal_uuid(text)
        if uuid is None:  # a maker's own idea of a UUID names nothing
            return clean(text.lower()), False
        return uuid, usable_uuid(uuid) and uuid not in _normals(extra.uuids, normal_uuid)
    if kind == "mac":
        mac = normal_mac(text) or text.lower()
        return mac, normal_mac(text) is not None and usable_mac(mac) and mac not in _normals(extra.macs, normal_mac)
    serial = normal_serial(text)
    if kind == "gpu":
        return serial, usable_serial(serial.removeprefix("gpu-").replace("-", ""))
    return serial, usable_serial(serial) and serial not in _normals(extra.serials, normal_serial)


def _normals(texts: Iterable[str], normal: Any) -> set[str]:
    return {normal(text) for text in texts}


def _faults(message: Identifiers) -> Iterator[Fault]:
    for name, text in (("productUuid", message.product_uuid), ("serial", message.serial)):
        if text is not None and not text.isprintable():
            yield Fault(f"identifiers.{name}", "holds a control character")
    for n, text in enumerate(message.macs):
        if normal_mac(text) is None:
            yield Fault(f"identifiers.macs[{n}]", "is no MAC address: six pairs of hexadecimal digits with colons")
    for n, text in enumerate(message.gpu_uuids):
        if not _GPU.fullmatch(text):
            yield Fault(f"identifiers.gpuUuids[{n}]", "is no GPU UUID: GPU- and hexadecimal digits")
