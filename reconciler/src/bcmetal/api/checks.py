"""What the configuration has to say to an input before anything is decided: images, profiles, waivers."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from bcmetal.boot import config_drive
from bcmetal.boot.outbound import AddressRefused, literal, name_listed, parse_target, permitted
from bcmetal.errors import Fault, InvalidInput
from bcmetal.models import Commission, Deploy, Release, Service
from bcmetal.models_words import Input
from bcmetal.settings import Pool, Settings


def check_input(asked: Input, settings: Settings, pool: Pool) -> None:
    """Raises InvalidInput with every fault."""
    faults: list[Fault] = []
    if isinstance(asked, Deploy):
        faults = list(_image_faults(asked, settings))
    elif isinstance(asked, Commission):
        faults = list(_profile_faults(asked.profile, settings.profiles.commission, "commission"))
    elif isinstance(asked, Release):
        faults = list(_profile_faults(asked.profile, settings.profiles.release, "release"))
        faults += _waiver_faults(asked, settings, pool)
    if faults:
        raise InvalidInput(faults)


def _profile_faults(name: str | None, profiles: Mapping[str, object], kind: str) -> Iterable[Fault]:
    if name is not None and name not in profiles:
        yield Fault("profile", f"there is no {kind} profile {name}; there are: {', '.join(sorted(profiles)) or 'none'}")


def service_faults(asked: Service, name: str, settings: Settings) -> Iterable[Fault]:
    """A step whose values the profile does not have would do nothing."""
    profile = settings.profiles.commission.get(name)
    if profile is None:
        yield from _profile_faults(name, settings.profiles.commission, "commission")
        return
    values = {
        "bootMode": profile.boot_mode,
        "secureBoot": profile.secure_boot,
        "secureBootKeys": profile.secure_boot_keys,
        "firmware": profile.firmware,
        "bios": profile.bios or None,
    }
    for n, step in enumerate(asked.steps):
        if step in values and values[step] is None:
            yield Fault(f"steps[{n}]", f"commission profile {name} says nothing of {step}: name another profile")


def _waiver_faults(asked: Release, settings: Settings, pool: Pool) -> Iterable[Fault]:
    name = asked.profile or pool.release
    profile = settings.profiles.release.get(name)
    if asked.erase_waiver is not None and profile is not None and profile.erases and profile.unerased == "fail":
        yield Fault("eraseWaiver", f'profile {name} allows no waiver (unerased = "fail"): name another, or change it')


def _image_faults(asked: Deploy, settings: Settings) -> Iterable[Fault]:
    """Whether a name resolves to an allowed address is the fetch's to find."""
    image = asked.image
    if image.name is not None and image.name not in settings.images:
        known = ", ".join(sorted(settings.images)) or "none"
        yield Fault("image.name", f"there is no image {image.name}; there are: {known}")
    if image.url is not None:
        refused = refusal_of(image.url, settings.image_hosts())
        if refused is not None:
            yield Fault("image.url", refused)
    named = settings.images.get(image.name or "")
    kind = kind_of(asked, settings)
    if named is not None and named.kind != kind:
        yield Fault("kind", f"is {kind}, and image {image.name} has the format {named.format}: leave it out")
    if kind == "image":
        if image.url is not None and image.format not in ("raw", "qcow2"):
            yield Fault("image.format", "an image of kind image has the format raw or qcow2")
        yield from _config_drive_faults(asked, named.config_drive if named is not None else "nocloud")
    else:
        if image.format not in (None, "iso"):
            yield Fault("image.format", "an image of kind iso has the format iso")
        if image.compression not in (None, "none"):
            yield Fault("image.compression", "an ISO is served as it is: not compressed")
        for field in ("user_data", "meta_data", "network_data", "ssh_keys"):
            if getattr(asked, field):
                name = type(asked).model_fields[field].alias or field
                yield Fault(name, "an ISO boots as it is: nothing can be delivered to it")


def _config_drive_faults(asked: Deploy, kind: Literal["nocloud", "config-2"]) -> Iterable[Fault]:
    try:
        config_drive.check(kind, asked.user_data, asked.meta_data, asked.network_data)
    except InvalidInput as error:
        yield from error.faults


def kind_of(asked: Deploy, settings: Settings) -> str:
    """What was said; else what the image's format means."""
    if asked.kind is not None:
        return asked.kind
    named = settings.images.get(asked.image.name or "")
    if named is not None:
        return named.kind
    return "image" if asked.image.format in ("raw", "qcow2") else "iso"


def refusal_of(url: str, allowed: Sequence[str]) -> str | None:
    """Why this address can never be fetched from here, in words; None: it may be."""
    try:
        target = parse_target(url)
    except AddressRefused as error:
        return str(error)
    own = literal(target.host)
    if own is not None:
        fine = permitted(own, False, allowed)
    else:
        fine = name_listed(target.host, allowed) or _lists_networks(allowed)
    return None if fine else "its host is not allowed here: list it under images_from in the configuration"


def _lists_networks(allowed: Sequence[str]) -> bool:
    """A host name that is not listed may still resolve into a listed network."""
    for entry in allowed:
        with suppress(ValueError):
            ipaddress.ip_network(entry, strict=False)
            return True
    return False
