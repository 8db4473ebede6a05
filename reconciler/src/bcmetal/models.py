"""What the methods of metal take. The OpenAPI document is made from these very models; `models_records`, `models_joining` have the others.

Inputs are strict: unknown fields, wrong types and characters that a log, a header or a BMC could mistake are refused. Answers come from
the store as ready JSON; their models are for the document alone.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator

from bcmetal.models_words import (
    SAFE_INTEGER,
    SSH_KEY,
    WORD,
    Address,
    Change,
    DriverName,
    Fingerprint,
    Input,
    Labels,
    Located,
    Mac,
    Moment,
    Mutation,
    NodeMutation,
    NodeName,
    OfNode,
    Password,
    PoolId,
    Reason,
    Sha256,
    Sha512,
    Short,
    TenantId,
    Username,
    UserText,
    VerbName,
    Word,
    crypted,
    secret,
)
from bcmetal.states import State

# ---------------------------------------------------------------- parts


class Tls(Input):
    """How the BMC's certificate is trusted; nothing: as its network says. At most one of the three."""

    verify: bool | None = None
    ca_pem: Annotated[str, StringConstraints(max_length=64 * 1024)] | None = None
    fingerprint: Fingerprint | None = None

    @model_validator(mode="after")
    def _one(self) -> Tls:
        if self.verify is False and (self.ca_pem or self.fingerprint):
            raise ValueError("verify: false goes with neither caPem nor fingerprint")
        if self.ca_pem and self.fingerprint:
            raise ValueError("give caPem or fingerprint, not both")
        return self


class BmcPlace(Input):
    """`address`: redfish://HOST[:PORT][/redfish/v1/Systems/ID], redfish+http://…, ipmi://HOST[:PORT], a maker's form, or a bare HOST."""

    address: Address
    driver: DriverName | None = None
    system_id: Short | None = None
    tls: Tls = Tls()


class NewBmc(BmcPlace):
    """Either `username` and `password`, or `credentialRef`."""

    username: Username | None = None
    password: Password | None = None
    credential_ref: Word | None = None

    @model_validator(mode="after")
    def _whole(self) -> NewBmc:
        if (self.username is None) is not (self.password is None):
            raise ValueError("username and password go together")
        if self.username is not None and self.credential_ref is not None:
            raise ValueError("give username and password, or credentialRef, not both")
        return self


class BmcChange(Input):
    """What is left out stays as it is."""

    address: Address | None = None
    driver: DriverName | None = None
    system_id: Short | None = None
    tls: Tls | None = None
    credential_ref: Word | None = None


class Location(Input):
    room: Short | None = None
    rack: Annotated[str, StringConstraints(pattern=WORD)] | None = None
    unit: Short | None = None


class RootDevice(Input):
    """Hints by which the disk for the system is chosen; exactly one disk has to agree with all of them. Without any, the smallest that will do."""

    serial: Short | None = None
    wwn: Short | None = None
    model: Short | None = None
    by_path: Short | None = None
    transport: Word | None = None
    rotational: bool | None = None
    min_size_bytes: int | None = Field(None, ge=0, le=SAFE_INTEGER)
    max_size_bytes: int | None = Field(None, ge=0, le=SAFE_INTEGER)


class Image(Input):
    """By `name` from the configuration, or by `url` with a checksum."""

    name: Word | None = None
    url: Annotated[str, StringConstraints(min_length=1, max_length=2048, pattern=r"^[!-~]+$")] | None = None
    sha256: Sha256 | None = None
    sha512: Sha512 | None = None
    format: Literal["iso", "raw", "qcow2"] | None = None
    compression: Literal["none", "gzip", "zstd", "xz"] | None = None

    @model_validator(mode="after")
    def _one(self) -> Image:
        if (self.name is None) is (self.url is None):
            raise ValueError("give name or url, one of them")
        if self.url is not None and self.sha256 is None and self.sha512 is None:
            raise ValueError("an image by its url needs sha256 or sha512")
        if self.name is not None and (self.sha256 or self.sha512 or self.format or self.compression):
            raise ValueError("a named image has its checksum and format in the configuration")
        return self


class EraseWaiver(Input):
    """Who signs for drives that were not erased: `serials`, or the whole `machine`."""

    reason: Reason
    custody: Reason | None = None
    serials: Annotated[tuple[Short, ...], Field(max_length=256)] = ()
    machine: bool = False

    @model_validator(mode="after")
    def _one(self) -> EraseWaiver:
        if self.machine is bool(self.serials):
            raise ValueError("give serials, or machine: true")
        return self


# ---------------------------------------------------------------- methods


class Enroll(Located, Mutation):
    bmc: NewBmc
    name: NodeName | None = None
    boot_mac: Mac | None = None
    location: Location = Location()
    asset_tag: Short | None = None
    labels: Labels = Field({})
    root_device: RootDevice | None = None
    inspect: bool = True


class DoctorBmc(Input):
    address: Address
    tls: Tls = Tls()
    credential_ref: Word | None = None


class Doctor(Located, Change):
    """Without `bmc.credentialRef` nothing is sent that authorises."""

    bmc: DoctorBmc


class List(Input):
    """Without `poolId`: every pool of the tenant that the caller may read."""

    tenant_id: TenantId
    pool_id: PoolId | None = None
    state: State | None = None
    labels: Labels = Field({})
    query: Short | None = None
    condition: Annotated[str, StringConstraints(pattern=r"^[a-z-]{1,32}$")] | None = None
    needs_attention: bool | None = None
    limit: int = Field(100, ge=1, le=200)
    cursor: Annotated[str, StringConstraints(pattern=r"^nd_[0-9a-hjkmnp-tv-z]{26}$")] | None = None


class Inventory(OfNode):
    """`since`: also the inventories that were found different after that time."""

    since: Moment | None = None


class Timeline(OfNode):
    limit: int = Field(50, ge=1, le=200)


OperationId = Annotated[str, StringConstraints(pattern=r"^op_[0-9a-hjkmnp-tv-z]{26}$")]
TaskName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,62}$")]


class Logs(OfNode):
    """`operationId` left out: the newest operation that had the agent do something. `task` left out: no text, only what there is."""

    operation_id: OperationId | None = None
    task: TaskName | None = None
    offset: int = Field(0, ge=0, le=SAFE_INTEGER)


class Plan(OfNode):
    """A verb and the input that it would get, without tenant, pool and node."""

    verb: VerbName
    input: dict[str, Any] = Field({})


class Inspect(NodeMutation):
    deep: bool = False


class Refresh(NodeMutation):
    deep: bool = False


class Commission(NodeMutation):
    profile: Word | None = None
    confirm_erase: Short | None = None


SshKey = Annotated[str, StringConstraints(pattern=SSH_KEY, max_length=4096)]
SshKeys = Annotated[tuple[SshKey, ...], Field(max_length=64)]


class Deploy(NodeMutation):
    """`kind`: iso boots the image as it is, image has the agent write it to a disk; left out: by the image's format.

    `userData`, `metaData` and `networkData` reach the machine's cloud-init by a config drive. The network's data is cloud-init's version 2,
    as JSON or YAML.
    """

    image: Image
    kind: Literal["iso", "image"] | None = None
    user_data: UserText | None = None
    meta_data: UserText | None = None
    network_data: UserText | None = None
    ssh_keys: SshKeys = ()
    rebuild: bool = False
    confirm_erase: Short | None = None


ServiceStep = Literal[
    "powerCycle", "bootMode", "secureBoot", "secureBootKeys", "firmware", "bios", "hostWays", "resetBmc"
]


class Service(NodeMutation):
    """`steps` are done in their order, by the values of the named commission profile, else of the one that the machine was last commissioned by.

    `force`: a system that does not shut down when it is asked to may be switched off.
    """

    steps: Annotated[tuple[ServiceStep, ...], Field(min_length=1, max_length=8)]
    profile: Word | None = None
    force: bool = False

    @model_validator(mode="after")
    def _once(self) -> Service:
        if len(set(self.steps)) != len(self.steps):
            raise ValueError("steps: each is named once")
        return self


class Rescue(NodeMutation):
    """With keys or a password's hash (as crypt(3) makes it) the agent opens SSH; without, the pool's rescue ISO boots."""

    ssh_keys: SshKeys = ()
    password_hash: Annotated[SecretStr, secret(512), AfterValidator(crypted)] | None = None
    expires_after_s: int | None = Field(None, ge=60, le=30 * 86400)


class Release(NodeMutation):
    profile: Word | None = None
    confirm_erase: Short | None = None
    erase_waiver: EraseWaiver | None = None


class Retire(NodeMutation):
    confirm_erase: Short | None = None
    erase_waiver: EraseWaiver | None = None
    keep_credentials: bool = False
    discard_credentials: bool = False

    @model_validator(mode="after")
    def _one(self) -> Retire:
        if self.keep_credentials and self.discard_credentials:
            raise ValueError("keepCredentials and discardCredentials exclude each other")
        return self


class Remove(NodeMutation):
    abandon: Reason | None = None


class SetPower(NodeMutation):
    """`softRestart`, `powerCycle`: by the BMC itself where it can, else off, seen off, and on. `pushButton`: a short press."""

    action: Literal["on", "off", "softOff", "cycle", "nmi", "softRestart", "powerCycle", "pushButton"]


class Identify(NodeMutation):
    on: bool = True


class ResetBmc(NodeMutation):
    """`hard`: at once, whatever the BMC is doing. The machine goes on either way."""

    hard: bool = False


class ReadEventLog(NodeMutation):
    """`limit`: the newest so many."""

    limit: int = Field(100, ge=1, le=500)


ConsoleId = Annotated[str, StringConstraints(pattern=r"^cs_[0-9a-hjkmnp-tv-z]{26}$")]


class OpenConsole(OfNode, Change):
    """The machine's serial console, through its BMC."""


class TypeConsole(OfNode):
    """`data`: what is typed, in base64, at most 4096 bytes of it. `sendBreak`: the serial line's break, before it. `offset`: how many bytes were
    typed before, a break counting as one: with it, a call that is repeated types nothing twice."""

    console_id: ConsoleId
    data: Annotated[str, StringConstraints(max_length=5464)] = ""
    send_break: bool = False
    offset: int | None = Field(None, ge=0, le=SAFE_INTEGER)


class CloseConsole(OfNode):
    console_id: ConsoleId


class SetBmcCredentials(NodeMutation):
    username: Username
    password: Password


class Update(NodeMutation):
    """`acceptIdentity`, with a `reason`: the board or the BMC was swapped, and the machine that is there now is this node's."""

    name: NodeName | None = None
    labels: Labels | None = None
    location: Location | None = None
    asset_tag: Short | None = None
    boot_mac: Mac | None = None
    root_device: RootDevice | None = None
    bmc: BmcChange | None = None
    accept_identity: bool = False
    reason: Reason | None = None


class SetMaintenance(NodeMutation):
    on: bool
    reason: Reason | None = None
    until: Moment | None = None
    quiet: bool = False


class SetProtected(NodeMutation):
    on: bool
    reason: Reason | None = None
    until: Moment | None = None
