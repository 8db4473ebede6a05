"""Faults of a configuration, in the file's own terms: a path such as `pools.gpu.site`, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bcmetal.errors import Fault
from bcmetal.settings_words import AGENT_ERASES
from bcmetal_agent.wire_tests import MARKS

Doc = Mapping[str, Any]

# Settings of the design that this build does not have yet.
LATER: Final = frozenset(
    {
        *("metrics_listen", "backup"),
        "after_outage",
        *("gates", "oidc", "notify"),
    }
)


def faults_of(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """Every fault that pydantic found, one for each path."""
    found: dict[str, Fault] = {}
    for detail in error.errors(include_url=False, include_context=True, include_input=False):
        path = toml_path(detail["loc"])
        found.setdefault(path, Fault(path, _words(detail, model)))
    return list(found.values())


def toml_path(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not _is_branch(part):
            text += f".{part}" if text else part
    return text


def _is_branch(part: str) -> bool:
    """pydantic names the branch of a union, and a faulty key, inside the path."""
    return part == "[key]" or "[" in part


def _words(detail: ErrorDetails, model: type[BaseModel]) -> str:
    kind = detail["type"]
    last = str(detail["loc"][-1]) if detail["loc"] else ""
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        if last in LATER:
            return "this build does not have it yet: leave it out"
        near = difflib.get_close_matches(last, [name for name in _known(model) if name != last], n=1)
        return f"unknown setting; did you mean {near[0]}?" if near else "unknown setting: leave it out"
    if kind == "value_error":
        return str(detail["msg"]).removeprefix("Value error, ")
    if kind == "string_pattern_mismatch":
        return _pattern_words(last)
    text = str(detail["msg"])
    return text[:1].lower() + text[1:]


def _pattern_words(field: str) -> str:
    known = {
        "to": "must be key:NAME or cert:COMMON-NAME",
        "name": "must be key:NAME or cert:COMMON-NAME",
        "on": "must be site/ID or compute-pool/ID",
        "sha256": "must be 64 hexadecimal digits",
        "sha512": "must be 128 hexadecimal digits",
        "database": "must be sqlite:///PATH or postgresql+psycopg://…",
    }
    return known.get(field, "letters, digits, dots, hyphens and underscores only, a letter or digit first")


def _known(model: type[BaseModel]) -> list[str]:
    names: set[str] = set()
    seen: set[type[BaseModel]] = set()

    def walk(one: type[BaseModel]) -> None:
        if one in seen:
            return
        seen.add(one)
        for name, field in one.model_fields.items():
            names.add(name)
            for inner in _models_in(field.annotation):
                walk(inner)

    walk(model)
    return sorted(names)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _models_in(inner)


def references(doc: Doc) -> list[Fault]:
    """Names that nothing in the file has, and rules between tables. Works on whatever part of the file is well-formed."""
    return [
        *_of_pools(doc),
        *_of_profiles(doc),
        *_of_credentials(doc),
        *_of_claims(doc),
        *_of_images(doc),
        *_of_firmware(doc),
        *_of_networks(doc),
        *_of_grants(doc),
    ]


def _tables(doc: Doc, *path: str) -> dict[str, Doc]:
    found: Any = doc
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        return {}
    return {str(name): table for name, table in found.items() if isinstance(table, Mapping)}


def _entries(doc: Doc, name: str) -> list[Doc]:
    found = doc.get(name)
    return [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list) else []


def _of_pools(doc: Doc) -> Iterator[Fault]:
    wanted = (
        ("site", ("sites",)),
        ("commission", ("profiles", "commission")),
        ("release", ("profiles", "release")),
        ("rescue_iso", ("images",)),
        ("hand_over", ("credentials",)),
    )
    for name, pool in _tables(doc, "pools").items():
        for field, place in wanted:
            value = pool.get(field)
            if isinstance(value, str) and value not in _tables(doc, *place):
                yield Fault(
                    f"pools.{name}.{field}", f"there is no [{'.'.join(place)}.{value}]: add it, or name another"
                )
        if pool.get("sign_of_life") == "agent" and pool.get("agent", "none") == "none":
            yield Fault(f"pools.{name}.sign_of_life", 'is agent, and the pool\'s machines run none: say agent = "bcd"')


def _of_profiles(doc: Doc) -> Iterator[Fault]:
    """A pool whose machines run no agent can have neither its erase methods nor its tests; a hold needs somebody to hold it for."""
    for name, pool in _tables(doc, "pools").items():
        if pool.get("agent", "none") != "none":
            continue
        for kind in ("commission", "release"):
            profile = _tables(doc, "profiles", kind).get(str(pool.get(kind)), {})
            methods = profile.get("erase")
            if isinstance(methods, list) and methods and set(methods) <= set(AGENT_ERASES):
                yield Fault(
                    f"pools.{name}.{kind}",
                    f'[profiles.{kind}.{pool.get(kind)}] erases by the agent, and the pool\'s machines run none: say agent = "bcd", '
                    'or name a profile whose erase lists "bmc"',
                )
            for field in ("tests", "bom"):
                if profile.get(field):
                    yield Fault(
                        f"pools.{name}.{kind}",
                        f'[profiles.{kind}.{pool.get(kind)}] has `{field}`, which need the agent: say agent = "bcd"',
                    )
    for name, profile in _tables(doc, "profiles", "commission").items():
        for test, marks in _tables(profile, "tests", "limits").items():
            path = f"profiles.commission.{name}.tests.limits.{test}"
            if test not in MARKS:
                yield Fault(path, f"there is no test {test}; there are: {', '.join(MARKS)}")
            for mark in marks if test in MARKS else ():
                if mark not in MARKS[test]:
                    yield Fault(f"{path}.{mark}", f"that test knows no such mark; it knows {', '.join(MARKS[test])}")
        if profile.get("raid") and profile.get("erase") == "none":
            yield Fault(
                f"profiles.commission.{name}.raid", "destroys what is on the drives: it goes with an erase only"
            )
        if profile.get("hold_on_failure_s") and not profile.get("hold_keys"):
            yield Fault(
                f"profiles.commission.{name}.hold_keys", "is missing: whose SSH keys open a machine that is held"
            )


def _of_credentials(doc: Doc) -> Iterator[Fault]:
    for name, credential in _tables(doc, "credentials").items():
        networks = credential.get("networks")
        for n, value in enumerate(networks if isinstance(networks, list) else ()):
            if isinstance(value, str) and value not in _tables(doc, "networks"):
                path = f"credentials.{name}.networks[{n}]"
                yield Fault(path, f"there is no [networks.{value}]: add it, or name another")


def _of_claims(doc: Doc) -> Iterator[Fault]:
    """What is claimed is an account of a credential that goes to the same networks."""
    credentials = _tables(doc, "credentials")
    for name, credential in credentials.items():
        wanted = credential.get("on_enroll")
        if not isinstance(wanted, str):
            continue
        path, ours = f"credentials.{name}.on_enroll", credentials.get(wanted.removeprefix("claim:"))
        if ours is None:
            yield Fault(path, f"there is no [credentials.{wanted.removeprefix('claim:')}]: add it, or name another")
        elif "username" not in ours:
            yield Fault(
                path, f"[credentials.{wanted.removeprefix('claim:')}] has no username of its own: name one that has"
            )


def _of_images(doc: Doc) -> Iterator[Fault]:
    for name, image in _tables(doc, "images").items():
        if "sha256" not in image and "sha512" not in image:
            yield Fault(f"images.{name}.sha256", "is missing: an image is known by its sha256 or sha512")


def _of_firmware(doc: Doc) -> Iterator[Fault]:
    for name, baseline in _tables(doc, "firmware").items():
        for component, image in _tables(baseline).items():
            if "url" in image and "sha256" not in image and "sha512" not in image:
                yield Fault(
                    f"firmware.{name}.{component}.sha256", "is missing: an image is known by its sha256 or sha512"
                )
    for name, profile in _tables(doc, "profiles", "commission").items():
        wanted = profile.get("firmware")
        if isinstance(wanted, str) and wanted not in _tables(doc, "firmware"):
            path = f"profiles.commission.{name}.firmware"
            yield Fault(path, f"there is no [firmware.{wanted}]: add it, or name another")


def _of_networks(doc: Doc) -> Iterator[Fault]:
    taken: dict[str, str] = {}
    for name, network in _tables(doc, "networks").items():
        cidrs = network.get("cidrs")
        for n, value in enumerate(cidrs if isinstance(cidrs, list) else ()):
            try:
                cidr = str(ip_network(value))
            except ValueError:
                continue  # a fault of its own, named already
            if cidr in taken:
                yield Fault(
                    f"networks.{name}.cidrs[{n}]", f"is in [networks.{taken[cidr]}] too: leave it out of one of them"
                )
            taken[cidr] = name


def _of_grants(doc: Doc) -> Iterator[Fault]:
    names: set[str] = set()
    for n, entry in enumerate(_entries(doc, "identities")):
        name = entry.get("name")
        if isinstance(name, str):
            if name in names:
                yield Fault(f"identities[{n}].name", "is there twice: an identity has one tenant")
            names.add(name)
    for n, grant in enumerate(_entries(doc, "grants")):
        to, on = grant.get("to"), grant.get("on")
        if isinstance(to, str) and to.startswith("cert:") and to not in names:
            yield Fault(
                f"grants[{n}].to", "a certificate's identity needs an [[identities]] entry that names its tenant"
            )
        if isinstance(on, str):
            kind, _, value = on.partition("/")
            table = {"site": "sites", "compute-pool": "pools"}.get(kind)
            if table is not None and value not in _tables(doc, table):
                yield Fault(f"grants[{n}].on", f"there is no [{table}.{value}]: add it, or name another")
        if "role" not in grant and not grant.get("actions"):
            yield Fault(f"grants[{n}].role", "is missing: reader, operator or admin, or a list of `actions`")
