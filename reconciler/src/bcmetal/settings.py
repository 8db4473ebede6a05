"""The site's configuration: one TOML file, checked whole. Every fault is named at once, by its path in the file, with what to do.

Nothing here is a secret: a password is named by where it lies (`sealed:NAME`, `file:PATH`, `credential:NAME`).
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    ValidationError,
)

from bcmetal.decisions import PoolMode, PoolPolicy
from bcmetal.errors import Fault, InvalidInput
from bcmetal.manifests import faults_of_manifests
from bcmetal.settings_credentials import NamedCredential as NamedCredential
from bcmetal.settings_credentials import read_secret as read_secret
from bcmetal.settings_credentials import secret_path as secret_path
from bcmetal.settings_faults import faults_of, references
from bcmetal.settings_grants import Grant, IdentityEntry
from bcmetal.settings_profiles import FirmwareImage, Profiles
from bcmetal.settings_tables import Named, Table
from bcmetal.settings_words import (
    GIB,
    Attestor,
    ComponentPattern,
    PoolId,
    Sha256,
    Sha512,
    TenantId,
    Word,
    base_url,
    cidr,
    host,
    host_or_cidr,
    image_url,
    listen,
    place,
    server_name,
    sign,
    spiffe_domain,
    trust,
)

WAITS: Final = ("plain_boot_wait_s", "hello_within_s")


class Daemon(Table):
    """`images_from`: host names, `*.suffix` and networks that images may be fetched from. Loopback, link-local and the like only when
    listed as networks. The hosts of `[images]` are listed by standing there. `ramdisk_folder`: what `bcmetal ramdisk build` made.
    `plain_boot_wait_s`: an agent whose boot token crossed the wire in the clear gets nothing secret for so long after its hello: time in
    which the machine's own hello shows that somebody else used its token. `hello_within_s`: what a machine may take from its start to its
    agent's call; then it is started anew."""

    database: Annotated[str, StringConstraints(pattern=r"^(sqlite:///.|postgresql\+psycopg://).*")] = (
        "sqlite:////var/lib/bcmetal/db"
    )
    api_listen: Annotated[str, AfterValidator(listen)] = "[::]:8443"
    node_listen: Annotated[str, AfterValidator(listen)] = "[::]:8444"
    agent_listen: Annotated[str, AfterValidator(listen)] = "[::]:8445"
    media_listen: Annotated[str, AfterValidator(listen)] = "[::]:8480"
    tls_cert: Path | None = None
    tls_key: Annotated[str, AfterValidator(place)] | None = None
    client_ca: Path | None = None
    vault_key: Annotated[str, AfterValidator(place)] = "credential:vault-key"
    image_folder: Path = Path("/var/lib/bcmetal/images")
    image_limit_bytes: int = Field(32 * GIB, ge=1)
    images_from: tuple[Annotated[str, AfterValidator(host_or_cidr)], ...] = ()
    images_ca: Path | None = None
    ramdisk_folder: Path = Path("/var/lib/bcmetal/ramdisk")
    plain_boot_wait_s: int = Field(20, ge=0, le=3600)
    hello_within_s: int = Field(900, ge=60, le=7200)


class Site(Named):
    """`custom`: the site is a tenant's own, and whatever joins there is tenant-owned. `secrets`: what nodes of platform trust are given."""

    owner: TenantId
    custom: bool = False
    secrets: dict[Word, Annotated[str, AfterValidator(place)]] = Field({})


class Network(Named):
    """Where BMCs or machines are: `cidrs` for addresses, `names` for host names. `plain_http`: Redfish without TLS may be spoken here.
    `media_url`: what BMCs there fetch media from. `agent_url`: what ramdisks there call. `dhcp`: who answers machines that boot over the
    network. `bmc_streams`: to how many BMCs there a connection is held on which they tell of events."""

    cidrs: tuple[Annotated[str, AfterValidator(cidr)], ...] = ()
    names: tuple[Annotated[str, AfterValidator(host)], ...] = ()
    media_url: Annotated[str, AfterValidator(base_url)] | None = None
    agent_url: Annotated[str, AfterValidator(base_url)] | None = None
    dhcp: Literal["existing", "proxy", "static"] = "existing"
    tls: Annotated[str, AfterValidator(trust)] = "verify"
    plain_http: bool = False
    bmc_streams: int = Field(0, ge=0, le=256)

    def parsed(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return tuple(ip_network(cidr) for cidr in self.cidrs)


class Image(Named):
    url: Annotated[str, AfterValidator(image_url)]
    sha256: Sha256 | None = None
    sha512: Sha512 | None = None
    format: Literal["iso", "raw", "qcow2"]
    config_drive: Literal["nocloud", "config-2"] = "nocloud"

    @property
    def kind(self) -> Literal["iso", "image"]:
        """How it is deployed: booted as it is, or written to a disk."""
        return "iso" if self.format == "iso" else "image"


class Kubernetes(Table):
    """`platform_operated`: the platform runs the clusters of this pool, so that a join from one keeps platform trust. Believed only of a pool
    that the platform owns."""

    platform_operated: bool = False


class Ipmi(Table):
    """How the pool's BMCs are spoken to over IPMI. `privilege`: what the account may be. `suites`: the cipher suites, in the order in which they
    are tried. `legacy`: suites without encryption and IPMI 1.5 too, where a BMC knows nothing better. `kg`: where its K_g lies, if it has one.
    """

    privilege: Literal["ADMINISTRATOR", "OPERATOR", "USER"] = "ADMINISTRATOR"
    suites: Annotated[tuple[Literal[17, 3], ...], Field(min_length=1)] = (17, 3)
    legacy: bool = False
    kg: Annotated[str, AfterValidator(place)] | None = None


class Pool(Named):
    """`tokenless`: the attestors by which a machine may ask to join without a token. `ek_allow`: SHA-256 of the SubjectPublicKeyInfo of the
    endorsement keys that the attestor tpm admits."""

    owner: TenantId
    site: Word
    commission: Word
    release: Word
    agent: Literal["none", "bcd"] = "none"
    mode: PoolMode = PoolMode.MANAGE
    erase_on_arrival: bool = False
    trust_bmc_erase: bool = False
    unverified_bmc: Literal["reuse", "hold"] = "reuse"
    rescue_iso: Word | None = None
    hand_over: Word | None = None
    sign_of_life: Annotated[str, AfterValidator(sign)] = "none"
    attestors: tuple[Attestor, ...] = ("token", "discovery", "tpm")
    tokenless: tuple[Literal["discovery", "tpm"], ...] = ()
    ek_allow: frozenset[Sha256] = frozenset()
    kubernetes: Kubernetes = Kubernetes()
    ipmi: Ipmi = Ipmi()

    def policy(self, settings: Settings) -> PoolPolicy:
        """What `decide` needs to know of this pool."""
        return PoolPolicy(
            pool_id=self.name,
            owner=self.owner,
            mode=self.mode,
            erase_on_arrival=self.erase_on_arrival,
            trust_bmc_erase=self.trust_bmc_erase,
            has_rescue_iso=self.rescue_iso is not None,
            agent=self.agent,
            commission_erases=settings.profiles.commission[self.commission].erases,
            release_erases=settings.profiles.release[self.release].erases,
        )


class Placeholders(Table):
    """Identifiers that many machines of this site share, beside those that the product knows."""

    uuids: frozenset[str] = frozenset()
    serials: frozenset[str] = frozenset()
    macs: frozenset[str] = frozenset()


class Joining(Table):
    """How nodes join. `names`: host names and addresses by which nodes call this daemon, beside those of `[networks]`. Times in seconds but
    for `expired_grace_days`: for how long after its end a certificate can still be renewed."""

    trust_domain: Annotated[str, AfterValidator(spiffe_domain)] = "bcmetal"
    names: tuple[Annotated[str, AfterValidator(server_name)], ...] = ()
    certificate_s: int = Field(86_400, ge=60, le=30 * 86_400)
    expired_grace_days: int = Field(30, ge=0, le=366)
    pending_s: int = Field(86_400, ge=60, le=30 * 86_400)
    approved_s: int = Field(3600, ge=60, le=30 * 86_400)
    ek_vendors: Path | None = None
    placeholders: Placeholders = Placeholders()


class Settings(Table):
    daemon: Daemon = Daemon()
    joining: Joining = Joining()
    sites: Annotated[dict[Word, Site], Field(min_length=1)]
    networks: dict[Word, Network] = Field({})
    credentials: dict[Word, NamedCredential] = Field({})
    images: dict[Word, Image] = Field({})
    firmware: dict[Word, dict[ComponentPattern, FirmwareImage]] = Field({})
    profiles: Profiles = Profiles()
    pools: dict[PoolId, Pool] = Field({})
    identities: tuple[IdentityEntry, ...] = ()
    grants: tuple[Grant, ...] = ()

    def model_post_init(self, context: Any, /) -> None:
        for tables in (
            *(self.sites, self.networks, self.credentials, self.images, self.pools),
            *(self.profiles.commission, self.profiles.release),
        ):
            for name, table in tables.items():
                table._name = name

    def digest(self) -> str:
        """Daemons of one site must agree on it."""
        doc = self.model_dump(mode="json", exclude={"daemon"})
        for credential in doc["credentials"].values():
            del credential["password"], credential["manifest"]  # where each host keeps it
        del doc["joining"]["ek_vendors"]
        for site in doc["sites"].values():
            site["secrets"] = sorted(site["secrets"])
        text = json.dumps(doc, sort_keys=True, default=sorted)
        return hashlib.sha256(text.encode()).hexdigest()

    def pool(self, pool_id: str) -> Pool | None:
        return self.pools.get(pool_id)

    def network_for(self, host: str) -> Network | None:
        """The network of a BMC's address: the narrowest CIDR that holds it; for a host name, the one that lists the name."""
        try:
            address = ip_address(host)
        except ValueError:
            return self._network_named(host.lower().rstrip("."))
        holding = [
            (cidr.prefixlen, network)
            for network in self.networks.values()
            for cidr in network.parsed()
            if cidr.version == address.version and address in cidr
        ]
        return max(holding, key=lambda pair: pair[0])[1] if holding else None

    def _network_named(self, host: str) -> Network | None:
        listing = [
            (len(name), network)
            for network in self.networks.values()
            for name in network.names
            if host == name or (name.startswith("*.") and host.endswith(name[1:]) and len(host) >= len(name))
        ]
        return max(listing, key=lambda pair: pair[0])[1] if listing else None

    def image_hosts(self) -> tuple[str, ...]:
        """What `boot.outbound` allows: the listed hosts and networks, and the hosts of the named images and firmware."""
        urls = [image.url for image in self.images.values()]
        urls += [one.url for images in self.firmware.values() for one in images.values() if one.url is not None]
        named = (urlsplit(url).hostname or "" for url in urls)
        return tuple(dict.fromkeys((*self.daemon.images_from, *named)))

    def tenant_of(self, identity: str) -> str | None:
        """The tenant that `[[identities]]` gives an identity."""
        return next((entry.tenant for entry in self.identities if entry.name == identity), None)

    def take_sealed(self, rows: Mapping[str, object]) -> None:
        """Hand the sealed rows of named credentials in, by the name behind `sealed:`."""
        for credential in self.credentials.values():
            if credential.sealed_name is not None:
                credential._row = rows.get(credential.sealed_name)


def load(path: Path) -> Settings:
    """Read and check the file. Raises InvalidInput with every fault."""
    try:
        doc = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput([Fault(str(path), f"cannot be read: {error.strerror}")]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput([Fault(str(path), f"is no TOML: {error}")]) from error
    settings = check(doc)
    faults = faults_of_manifests({name: one.manifest for name, one in settings.credentials.items()})
    if faults:
        raise InvalidInput(faults)
    return settings


def check(doc: Mapping[str, Any]) -> Settings:
    """The settings that a parsed file means. Raises InvalidInput with every fault."""
    settings: Settings | None = None
    faults: list[Fault] = []
    try:
        settings = Settings.model_validate(doc)
    except ValidationError as error:
        faults = faults_of(error, Settings)
    faults += references(doc)
    if settings is None or faults:
        raise InvalidInput(faults)
    return settings


def refused_reload(old: Settings, new: Settings, pools_with_nodes: Collection[str]) -> list[Fault]:
    """Why a running daemon may not go on with `new`; empty when it may."""
    faults: list[Fault] = []
    for pool_id in sorted(pools_with_nodes):
        before, after = old.pools.get(pool_id), new.pools.get(pool_id)
        if after is None:
            faults.append(Fault(f"pools.{pool_id}", "the pool has nodes: remove or retire them before the pool goes"))
        elif before is not None and (before.owner, before.site) != (after.owner, after.site):
            faults.append(Fault(f"pools.{pool_id}", "the pool has nodes: its owner and its site stay as they are"))
    for name in Daemon.model_fields:
        taken_at_once = name in ("images_from", "image_limit_bytes", "images_ca", "ramdisk_folder", *WAITS)
        if not taken_at_once and getattr(old.daemon, name) != getattr(new.daemon, name):
            faults.append(Fault(f"daemon.{name}", "changes with a restart only: `systemctl restart bcmetald`"))
    return faults
