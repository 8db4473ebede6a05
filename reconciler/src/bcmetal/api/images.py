"""Images on this daemon's shelf. What the configuration names is everybody's; what a tenant named by its address is that tenant's alone."""

from __future__ import annotations

import asyncio
from typing import Any

from bcmetal import models_records
from bcmetal.answers import Images, ImageView, PrunedImages
from bcmetal.api.access import actions_on_site, pools_allowing
from bcmetal.api.calls import Call, method
from bcmetal.api.checks import refusal_of
from bcmetal.boot.fetch import ImageFault, ImageSource
from bcmetal.boot.shelf import Entry, Ready, Shelf, key_of, owner_of, owner_tag
from bcmetal.errors import Fault, InvalidInput, Unavailable
from bcmetal.settings import Image
from bcmetal.settings_grants import Action
from bcmetal.store import agent_tasks, audit, media
from bcmetal.store.values import Json


@method("images", models_records.ImageList, Images, None, name="list")
async def list_images(call: Call[models_records.ImageList]) -> Json:
    """The images of the configuration, on the shelf or not, and what else is there for this tenant."""
    tenant_id = call.input.tenant_id
    pools_allowing(call.settings, call.who, tenant_id, Action.READ)
    entries = {entry.name: entry for entry in await asyncio.to_thread(_shelf(call).entries)}
    found = []
    for name, image in sorted(call.settings.images.items()):
        source = _named(image)
        found.append(_shown(source, name, entries.pop(key_of(source), None)))
    for entry in entries.values():
        if entry.owner in (None, owner_tag(tenant_id)):
            source = ImageSource("", entry.checksums.get("sha256"), entry.checksums.get("sha512"), entry.format)
            found.append(_shown(source, None, entry))
    return {"images": found}


@method("images", models_records.ImagePull, ImageView, None)
async def pull(call: Call[models_records.ImagePull]) -> Json:
    """Have an image on the shelf before a machine needs it. Answers at once with how far it is; asked again, it begins nothing anew."""
    asked, name = call.input, call.input.image.name
    pools_allowing(call.settings, call.who, asked.tenant_id, Action.OPERATE)
    source, shelf = _source(call), _shelf(call)
    if not shelf.knows(source):
        doc = {"name": name, "format": source.format, **source.checksums}
        await call.store.write(audit.add, call.audit(f"tenant/{asked.tenant_id}/images", "allowed", doc=doc), call.now)
    try:
        look = shelf.look(source, f"pull {call.who.name}")
    except ImageFault as fault:
        failed = {"code": fault.code, "message": str(fault), "retryable": fault.retryable}
        return {**_shown(source, name, None), "state": "failed", "error": failed}
    shown = _shown(source, name, None)
    if isinstance(look, Ready):
        return {**shown, "state": "ready", "file": _file(look)}
    return {**shown, "state": "fetching", "doneBytes": look.done_bytes, "totalBytes": look.total_bytes}


@method("images", models_records.ImagePrune, PrunedImages, None)
async def prune(call: Call[models_records.ImagePrune]) -> Json:
    """Delete images that no machine needs now and nobody looked at in the last quarter of an hour.

    The tenant's own; and public ones, if the caller may operate on a site.
    """
    tenant_id, settings = call.input.tenant_id, call.settings
    pools_allowing(settings, call.who, tenant_id, Action.OPERATE)
    shelf = _shelf(call)
    owners: set[str | None] = {owner_tag(tenant_id)}
    if any(Action.OPERATE in actions_on_site(settings, call.who, site) for site in settings.sites):
        owners.add(None)
    keep = {*await call.store.read(media.files, call.now), *await call.store.read(agent_tasks.files)}
    pruned = await asyncio.to_thread(shelf.prune, keep, lambda key: owner_of(key) in owners)
    total = sum(one.on_disk_bytes for one in pruned)
    entry = call.audit(f"tenant/{tenant_id}/images", "allowed", doc={"files": len(pruned), "bytes": total})
    await call.store.write(audit.add, entry, call.now)
    return {"pruned": [{"file": one.name, "bytes": one.on_disk_bytes} for one in pruned], "bytes": total}


def _shelf(call: Call[Any]) -> Shelf:
    """Raises Unavailable."""
    if call.services.shelf is None:
        raise Unavailable("this daemon has no shelf of images")
    return call.services.shelf


def _source(call: Call[models_records.ImagePull]) -> ImageSource:
    """Raises InvalidInput."""
    image, settings = call.input.image, call.settings
    if image.url is None:
        named = settings.images.get(image.name or "")
        if named is None:
            known = ", ".join(sorted(settings.images)) or "none"
            raise InvalidInput([Fault("image.name", f"there is no such image; there are: {known}")])
        return _named(named)
    refused = refusal_of(image.url, settings.image_hosts())
    if refused is not None:
        raise InvalidInput([Fault("image.url", refused)])
    return ImageSource(image.url, image.sha256, image.sha512, image.format or "iso", call.input.tenant_id)


def _named(image: Image) -> ImageSource:
    return ImageSource(image.url, image.sha256, image.sha512, image.format)


def _shown(source: ImageSource, name: str | None, entry: Entry | None) -> dict[str, Any]:
    return {
        "name": name,
        "format": source.format,
        "sha256": source.sha256,
        "sha512": source.sha512,
        "public": source.tenant is None if entry is None else entry.owner is None,
        "state": "absent" if entry is None else entry.state,
        "onDiskBytes": 0 if entry is None else entry.on_disk_bytes,
        "doneBytes": None if entry is None else entry.done_bytes,
        "totalBytes": None if entry is None else entry.total_bytes,
        "file": None if entry is None or entry.ready is None else _file(entry.ready),
    }


def _file(ready: Ready) -> dict[str, Any]:
    return {
        "bytes": ready.size,
        "sha256": ready.sha256,
        "compression": ready.compression,
        "rawBytes": ready.raw_bytes,
    }
