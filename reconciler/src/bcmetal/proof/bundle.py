"""Exported erasure records as files that `openssl` verifies by itself."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

VERIFY: Final = "openssl dgst -sha256 -verify keys/{key}.pem -signature records/{record}.sig records/{record}.json"
KEY_ID: Final = "openssl pkey -pubin -in keys/{key}.pem -outform DER | openssl dgst -sha256"
_RECORD: Final = re.compile(r"er_[0-9a-z]{26}")
_KEY: Final = re.compile(r"[0-9a-f]{64}")

README: Final = """Erasure records of bcmetal
==========================

records/RECORD.json   one record, byte for byte as it was signed
records/RECORD.sig    the signature over those bytes: ECDSA P-256 with SHA-256, DER
keys/KEY.pem          the public key; `keyId` in the record says which one
unsigned/             records from before bcmetal signed any: they prove nothing by themselves

openssl 1.0 or newer verifies a record, offline; it answers `Verified OK`:

    {verify}

A key is known by its id, which the site's admin tells you by another way than this folder (`bcmetal erasure keys`):

    {key_id}

The records here:

{commands}
"""


class BadExport(ValueError):
    """What the daemon answered is no export."""


@dataclass(frozen=True, slots=True)
class Written:
    signed: int
    unsigned: int


def write_folder(folder: Path, records: Sequence[Mapping[str, Any]], keys: Sequence[Mapping[str, Any]]) -> Written:
    """Into a new or an empty folder. Raises BadExport, FileExistsError, OSError."""
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(17, "is not empty", str(folder))
    files: dict[str, bytes] = {}
    commands: list[str] = []
    for key in keys:
        files[f"keys/{_named(_KEY, key['keyId'])}.pem"] = str(key["publicKey"]).encode("ascii")
    for record in records:
        name = _named(_RECORD, record["recordId"])
        text = str(record["document"])
        if record.get("signature") is None:
            files[f"unsigned/{name}.json"] = (json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n").encode()
            continue
        key_id = _named(_KEY, record["keyId"])
        if f"keys/{key_id}.pem" not in files:
            raise BadExport(f"the key of record {name} is not in the export")
        files[f"records/{name}.json"] = text.encode()
        files[f"records/{name}.sig"] = _decoded(record["signature"])
        commands.append(VERIFY.format(key=key_id, record=name))
    signed = len(commands)
    told = README.format(
        verify=VERIFY.format(key="KEY", record="RECORD"),
        key_id=KEY_ID.format(key="KEY"),
        commands="\n".join(f"    {line}" for line in commands) or "    none is signed",
    )
    files["README.txt"] = told.encode()
    for path, raw in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(raw)
    return Written(signed, len(records) - signed)


def _named(pattern: re.Pattern[str], name: object) -> str:
    """A name that leads nowhere else, whoever answered."""
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise BadExport("the export names a record or a key in a form that is none")
    return name


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except binascii.Error:
        raise BadExport("a signature in the export is no base64") from None
