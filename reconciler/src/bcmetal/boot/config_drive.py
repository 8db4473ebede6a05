"""Config drives: a small ISO 9660 image from which a deployed system's cloud-init learns who it is.

NoCloud (label cidata): meta-data, user-data, network-config, vendor-data in the root. ConfigDrive 2 (label config-2): OpenStack's files under
openstack/latest. Both hold `files` beside them, such as what the machine's own agent joins by. Whatever is the same gives the same bytes.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from bcmetal.boot import iso_dates
from bcmetal.boot.network_data import network_config, network_data
from bcmetal.errors import Fault, InvalidInput

Kind = Literal["nocloud", "config-2"]

LIMIT: Final = 2 * 2**20
TEXT_LIMIT: Final = 512 * 1024  # bytes of each of the texts that a tenant gives
LABELS: Final[Mapping[Kind, str]] = {"nocloud": "cidata", "config-2": "config-2"}
OURS: Final = frozenset({"instance-id", "uuid", "public-keys", "public_keys"})
_FILE_MODE: Final = 0o100400  # a token is among them
_FOLDER_MODE: Final = 0o040500


@dataclass(frozen=True, slots=True)
class Drive:
    """`instance_id`: another one than the last, and cloud-init does its work anew. `meta_data`: a JSON object, whose words go before ours
    where they are not `OURS`. `network_data`: see `network_data`. `files`: path on the drive → content.
    """

    kind: Kind
    instance_id: str
    hostname: str
    ssh_keys: Sequence[str] = ()
    user_data: str | None = field(default=None, repr=False)
    meta_data: str | None = field(default=None, repr=False)
    network_data: str | None = field(default=None, repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def build(drive: Drive) -> bytes:
    """The image. Raises InvalidInput that names the field at fault."""
    check(drive.kind, drive.user_data, drive.meta_data, drive.network_data)
    files = dict(_nocloud(drive) if drive.kind == "nocloud" else _config_2(drive)) | dict(drive.files)
    image = _iso(LABELS[drive.kind], files)
    if len(image) > LIMIT:
        raise InvalidInput([Fault("userData", f"the config drive would be larger than {LIMIT} bytes: give less")])
    return image


def check(kind: Kind, user_data: str | None, meta_data: str | None, network_data: str | None) -> None:
    """Whether a drive can be made of these. Raises InvalidInput with every fault."""
    faults: list[Fault] = []
    for name, text in (("userData", user_data), ("metaData", meta_data), ("networkData", network_data)):
        fault = _text_fault(text)
        if fault is not None:
            faults.append(Fault(name, fault))
    if not faults:
        for read in (lambda: _given(meta_data), lambda: _network(kind, network_data)):
            try:
                read()
            except InvalidInput as error:
                faults.extend(error.faults)
    if faults:
        raise InvalidInput(faults)


def _text_fault(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "holds half of a character: it is no text in UTF-8"
    if size > TEXT_LIMIT:
        return f"is longer than {TEXT_LIMIT} bytes"
    return "holds a null character" if "\0" in text else None


# ---------------------------------------------------------------- the files


def _nocloud(drive: Drive) -> Iterator[tuple[str, bytes]]:
    """https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html"""
    ours: dict[str, Any] = {"instance-id": drive.instance_id}
    if drive.ssh_keys:
        ours["public-keys"] = list(drive.ssh_keys)
    names = {"local-hostname": drive.hostname, "hostname": drive.hostname}
    yield "meta-data", _json(ours | names | _given(drive.meta_data))
    yield "user-data", _user_data(drive)
    yield "vendor-data", b"#cloud-config\n{}\n"
    if drive.network_data is not None:
        yield "network-config", _network(drive.kind, drive.network_data).encode()


def _config_2(drive: Drive) -> Iterator[tuple[str, bytes]]:
    """https://docs.openstack.org/nova/latest/user/metadata.html"""
    keys = {f"key{n}": key for n, key in enumerate(drive.ssh_keys)}
    ours: dict[str, Any] = {"uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, drive.instance_id))}
    if keys:
        ours["public_keys"] = keys
    names = {"hostname": drive.hostname, "name": drive.hostname}
    folder = "openstack/latest"
    yield f"{folder}/meta_data.json", _json(ours | names | _given(drive.meta_data))
    yield f"{folder}/user_data", _user_data(drive)
    yield f"{folder}/vendor_data.json", _json({})
    if drive.network_data is not None:
        yield f"{folder}/network_data.json", _network(drive.kind, drive.network_data).encode()


def _user_data(drive: Drive) -> bytes:
    """What was given, as it is. The keys are in the meta-data, too: whatever the user data are, cloud-init takes them from there."""
    if drive.user_data is not None:
        return drive.user_data.encode()
    return b"#cloud-config\n" + _json({"ssh_authorized_keys": list(drive.ssh_keys)} if drive.ssh_keys else {})


def _given(text: str | None) -> dict[str, Any]:
    """Raises InvalidInput."""
    if text is None:
        return {}
    try:
        doc = json.loads(text)
    except (ValueError, RecursionError):
        doc = None
    if not isinstance(doc, dict):
        raise InvalidInput([Fault("metaData", "must be a JSON object")])
    taken = sorted(OURS & doc.keys())
    if taken:
        raise InvalidInput([Fault("metaData", f"must not say {', '.join(taken)}: bcmetal does")])
    for name in ("local-hostname", "hostname", "name"):
        if name in doc and not isinstance(doc[name], str):
            raise InvalidInput([Fault(f"metaData.{name}", "must be a text")])
    return doc


def _network(kind: Kind, text: str | None) -> str:
    if text is None:
        return ""
    return network_config(text) if kind == "nocloud" else network_data(text)


def _json(doc: dict[str, Any]) -> bytes:
    """A line for each word: systems without a reader of JSON or YAML find theirs with sed."""
    return json.dumps(doc, indent=1).encode() + b"\n"


# ---------------------------------------------------------------- the image


def _iso(label: str, files: Mapping[str, bytes]) -> bytes:
    """ISO 9660 with Rock Ridge and Joliet names, so that every reader sees them as they are."""
    from pycdlib import PyCdlib  # here: a tenth of a second that only a deployment needs

    iso = PyCdlib()
    iso.new(interchange_level=4, vol_ident=label, joliet=3, rock_ridge="1.09")
    try:
        for folder in sorted({str(one) for path in files for one in PurePosixPath(path).parents} - {"."}):
            name = PurePosixPath(folder).name
            iso.add_directory(f"/{folder}", rr_name=name, joliet_path=f"/{folder}", file_mode=_FOLDER_MODE)
        for path, data in sorted(files.items()):
            name = PurePosixPath(path).name
            iso.add_fp(io.BytesIO(data), len(data), f"/{path}", name, f"/{path}", _FILE_MODE)
        out = io.BytesIO()
        iso.write_fp(out)
    finally:
        iso.close()
    image = bytearray(out.getvalue())
    iso_dates.fix(image)
    return bytes(image)
