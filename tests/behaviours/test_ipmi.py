"""BMCs that speak IPMI: machines that boot their agent over the network, moved by their boot flags and their power commands alone."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import SecretStr

from agent_life.machine import SimulatedMachine
from agent_life.site import LifeSite, a_life_site
from bcmetal.errors import LAST_ERRORS
from bcmetal.settings import Ipmi
from bcmetal.states import State, Verb
from bcmetal.workflows.machine import Line
from bcmetal_drivers.capabilities import BootOnce, ConsoleStreams, Power, need
from bcmetal_drivers.connection import Limits
from bcmetal_drivers.emulated.behaviours import REGISTRY
from bcmetal_drivers.emulated.ipmi import IpmiFront
from bcmetal_drivers.emulated.ipmi_wire import ADMINISTRATOR
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import BootDevice, BootMode, PowerState
from emulated_site_config import POOL

AS_USUAL: Final = Ipmi()
LIMITS: Final = Limits(connect_s=2.0, read_s=1.0, total_s=20.0)
LIFE: Final = ((Verb.INSPECT, State.INSPECTED), (Verb.COMMISSION, State.AVAILABLE), (Verb.RELEASE, State.AVAILABLE))


@dataclass(slots=True)
class Case:
    life: LifeSite
    bmc: EmulatedBmc
    machine: SimulatedMachine
    node_id: str

    @property
    def front(self) -> IpmiFront:
        assert isinstance(self.bmc.front, IpmiFront)
        return self.bmc.front

    @property
    def requests(self) -> Mapping[str, int]:
        return self.life.site.rack.requests(self.bmc)

    def effects(self, command: str) -> list[str]:
        """What was written by this command, in order."""
        writes = self.life.site.rack.writes
        return [w.path for w in writes if w.bmc == self.bmc.name and w.kind == "effect" and w.method == command]

    async def line(self) -> Line:
        site = self.life.site
        return site.lines.to(await site.peek(self.node_id), site.settings.pools[POOL], "")

    async def message(self) -> str:
        error = (await self.life.node(self.node_id)).last_error
        return "" if error is None else str(error["message"])


Judge = Callable[[Case], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """`until`: the last verb. `fails`: the `lastError.code` by which it ends. `pool`: how the pool speaks IPMI. `deep`: by an agent."""

    behaviour: str
    until: Verb = Verb.INSPECT
    fails: str = ""
    judge: Judge | None = None
    quirks: Mapping[str, Any] = field(default_factory=dict)
    pool: Ipmi = AS_USUAL
    deep: bool = True
    password: str = ""  # another than what the rack made up
    enrolled_with: str = ""  # another than the BMC's
    rotates: bool = False  # its commission gives the BMC a password of its own
    note: str = ""

    def __str__(self) -> str:
        return f"{self.behaviour}{'-' if self.note else ''}{self.note}"


async def anew_where_the_flag_was_gone(case: Case) -> None:
    """It is armed just before the start, so that the minute suffices; the oracle saw the network booted."""
    assert [boot.device for boot in case.machine.record.boots] == ["pxe"] * len(case.machine.record.boots)


async def in_whatever_mode(case: Case) -> None:
    """What the BMC shows is noted and not believed: the agent called, and that is the proof."""
    assert [boot.mode for boot in case.machine.record.boots] == ["legacy"]


async def nothing_was_started(case: Case) -> None:
    assert case.machine.record.boots == []
    assert case.effects("chassis-control") == []


async def no_name_was_told(case: Case) -> None:
    """Somebody in the BMC's place learns nothing: no login was begun."""
    await nothing_was_started(case)
    assert case.requests.get("rakp1", 0) == 0


async def the_privilege_is_named(case: Case) -> None:
    await nothing_was_started(case)
    assert "it may as OPERATOR" in await case.message()
    assert case.life.site.rack.failed_logins(case.bmc) == 0


async def remembered(case: Case) -> None:
    """What it takes is stored, so that the next login need not wait for an answer to another."""
    bmc = (await case.life.node(case.node_id)).bmc
    assert bmc is not None
    assert (bmc.learned or {})["ipmiSuite"] == 3


async def switched_once(case: Case) -> None:
    """However the answers went: no start was asked for twice."""
    asked = case.effects("chassis-control")
    assert asked.count("on") == len(case.machine.record.boots)


async def never_a_bad_password(case: Case) -> None:
    assert (await case.life.site.conditions(case.node_id)).get("credentials", ("ok", ""))[0] == "ok"
    assert case.life.site.rack.failed_logins(case.bmc) == 0


async def the_fru_is_named(case: Case) -> None:
    """The system GUID and the agent say who it is; nothing is refused for a FRU."""
    assert (await case.life.node(case.node_id)).facts.serial == case.machine.record.serial


async def the_disk_is_reached(case: Case) -> None:
    line = await case.line()
    await line.call(need(line.bmc, BootOnce).boot_once, BootDevice.DISK, BootMode.UEFI)
    assert case.machine.record.override.device is BootDevice.DISK
    await line.call(need(line.bmc, BootOnce).clear_boot_override)


async def the_console_is_taken_over(case: Case) -> None:
    line = await case.line()
    console = await line.call(need(line.bmc, ConsoleStreams).open_console)
    await asyncio.to_thread(console.write, b"\r")
    await asyncio.to_thread(console.close)
    assert bytes(case.front.serial.typed) == b"\r"
    assert not case.front.serial.in_use


async def a_password_of_16_bytes(case: Case) -> None:
    """The BMC has a new one, as long as it takes, and the daemon knows it."""
    assert len(case.bmc.password.get_secret_value()) == 16
    line = await case.line()
    assert await line.call(need(line.bmc, Power).power_state) is PowerState.OFF


async def the_limit_is_named(case: Case) -> None:
    await no_name_was_told(case)
    assert "20 bytes" in await case.message()


async def cipher_0_was_closed(case: Case) -> None:
    """Read back by the driver, and by somebody who comes with no password at all."""
    assert case.front.suites == (3, 17)
    assert "network-interface" not in await case.life.site.conditions(case.node_id)
    if shutil.which("ipmitool") is not None:
        assert await asyncio.to_thread(_without_a_password, case.bmc) != 0
        case.front.set("suites", (17, 3, 0))
        assert await asyncio.to_thread(_without_a_password, case.bmc) == 0


def _without_a_password(bmc: EmulatedBmc) -> int:
    where = ["-I", "lanplus", "-C", "0", "-H", bmc.host, "-p", str(bmc.port), "-N", "1", "-R", "1"]
    command = ["ipmitool", *where, "-U", bmc.username, "-E", "power", "status"]
    env = {"IPMITOOL_PASSWORD": secrets.token_hex(8), "PATH": "/usr/bin:/usr/sbin:/bin"}
    return subprocess.run(command, capture_output=True, timeout=20, check=False, env=env).returncode


ROWS = (
    Row("ipmi-flag-expires", quirks={"power_lag_s": 45.0}, judge=anew_where_the_flag_was_gone),
    Row("ipmi-forgets-uefi", judge=in_whatever_mode),
    Row("ipmi-loses-flags-once", judge=switched_once),
    Row("ipmi-forgets-persistence", judge=anew_where_the_flag_was_gone),
    Row("ipmi-supermicro-selectors", judge=the_disk_is_reached),
    Row("ipmi-suite-3-only"),
    Row("ipmi-suite-17-ignored", judge=remembered),
    Row("ipmi-suite-17-only"),
    Row("ipmi-no-encryption", fails="bmc-insecure-transport", judge=no_name_was_told),
    Row("ipmi-no-encryption", pool=Ipmi(legacy=True), note="legacy"),
    Row("ipmi-1.5-only", fails="bmc-insecure-transport", judge=no_name_was_told),
    Row("ipmi-cipher-0", until=Verb.COMMISSION, judge=cipher_0_was_closed),
    Row("ipmi-operator-account", fails="bmc-refused", judge=the_privilege_is_named),
    Row("ipmi-operator-account", pool=Ipmi(privilege="OPERATOR"), note="asked-for-less"),
    Row("ipmi-password-of-16-bytes", until=Verb.COMMISSION, rotates=True, judge=a_password_of_16_bytes),
    Row("ipmi-password-of-16-bytes", password=f"00{secrets.randbelow(10**10)}", note="numeric"),
    Row("ipmi-password-of-16-bytes", enrolled_with=secrets.token_hex(11), fails="bmc-refused", judge=the_limit_is_named, note="too-long"),
    Row("ipmi-busy", judge=switched_once),
    Row("ipmi-a-second-between-commands", quirks={"min_interval_s": 0.1}, deep=False),  # its second is a real one
    Row("ipmi-already-there-d5", until=Verb.COMMISSION, judge=switched_once),
    Row("ipmi-power-lags", judge=switched_once),
    Row("ipmi-answers-lost", judge=switched_once),
    Row("ipmi-logins-fail-after-power-on", judge=never_a_bad_password),
    Row("ipmi-forgets-sessions", judge=never_a_bad_password),
    Row("ipmi-fru-checksum", judge=the_fru_is_named),
    Row("ipmi-fru-garbled", judge=the_fru_is_named),
    Row("ipmi-fru-absent", judge=the_fru_is_named),
    Row("ipmi-stale-console", judge=the_console_is_taken_over),
)  # fmt: skip


class Shared:
    """One site for all rows; each brings a machine of its own."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._stack = AsyncExitStack()
        self._folder = folder
        self._count = 0
        self.life: LifeSite

    def __enter__(self) -> Shared:
        self.life = self._runner.run(self._stack.enter_async_context(a_life_site(self._folder)))
        self.life.site.lines.limits = LIMITS
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._stack.aclose())

    def tell(self, row: Row) -> None:
        self._runner.run(self._told(row))

    def run(self, scenario: Callable[[LifeSite], Awaitable[None]]) -> None:
        """What needs more than a row says; on a site as usual."""

        async def whole() -> None:
            self.life.site.set_pool(ipmi=AS_USUAL)
            _rotates(self.life, False)
            await scenario(self.life)

        self._runner.run(whole())

    async def _told(self, row: Row) -> None:
        life = self.life
        self._count += 1
        name = f"m{self._count}"
        machine, bmc = life.add(name, "ipmi"), life.bmcs[name]
        bmc.behave(row.behaviour)
        bmc.set(unknown_names="refused", **row.quirks)
        life.site.set_pool(ipmi=row.pool)
        _rotates(life, row.rotates)
        case = Case(life, bmc, machine, "")
        if row.password:
            bmc.password = case.front.users.slots[2].password = SecretStr(row.password)
        before = bmc.password
        bmc.password = SecretStr(row.enrolled_with) if row.enrolled_with else before
        case.node_id = await life.enroll(name)
        bmc.password = before
        found = life.plant(name)
        for verb, wanted in LIFE:
            state = await (
                life.live(case.node_id, verb, deep=row.deep) if verb is Verb.INSPECT else life.live(case.node_id, verb)
            )
            if verb is row.until and row.fails:
                await _failed(case, row.fails, state)
            else:
                assert state is wanted, (await life.node(case.node_id)).last_error
                assert machine.record.power is PowerState.OFF
                assert machine.record.override.device is BootDevice.NONE
                assert (life.holding(name, found) == []) is (verb is not Verb.INSPECT)
            if verb is row.until:
                break
        if row.judge is not None:
            await row.judge(case)
        assert life.site.rack.failed_logins(bmc) == 0
        assert life.site.rack.sessions(bmc) <= 1
        await life.site.lines.close_idle(older_s=-1.0)
        assert life.site.rack.sessions(bmc) == 0
        if REGISTRY[row.behaviour].rules:
            assert bmc.fired(row.behaviour) > 0, "it was never met"
        bmc.front.stop()


def _rotates(life: LifeSite, rotates: bool) -> None:
    settings = life.site.settings
    profile = settings.profiles.commission["standard"].model_copy(update={"rotate_bmc": rotates})
    profiles = settings.profiles.model_copy(update={"commission": {"standard": profile}})
    life.site.settings = settings.model_copy(update={"profiles": profiles})


async def _failed(case: Case, code: str, state: State) -> None:
    error = (await case.life.node(case.node_id)).last_error
    assert error is not None, f"it ended well, as {state}"
    assert error["code"] == code, error
    assert LAST_ERRORS[code].hint


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with asyncio.Runner() as runner, Shared(tmp_path_factory.mktemp("site"), runner) as site:
        yield site


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
    shared.tell(row)


def test_what_a_tenant_left_at_a_bmc_that_speaks_ipmi_is_removed_or_named(shared: Shared) -> None:
    """As root on its host: an administrator, a user without a name, cipher suite 0; and where alerts go, which nothing of ours puts back."""

    async def scenario(life: LifeSite) -> None:
        machine, bmc = life.add("tenants", "ipmi"), life.bmcs["tenants"]
        case = Case(life, bmc, machine, await life.enroll("tenants"))
        assert await life.live(case.node_id, Verb.INSPECT, deep=False) is State.INSPECTED
        assert await life.live(case.node_id, Verb.COMMISSION) is State.AVAILABLE, await case.message()
        image = {"image": {"name": "system"}, "kind": "image"}
        assert await life.live(case.node_id, Verb.DEPLOY, None, **image) is State.DEPLOYED, await case.message()
        case.front.users.add("mallory", SecretStr(secrets.token_hex(8)), ADMINISTRATOR)
        case.front.users.slots[1].enabled = True
        case.front.set("suites", (17, 3, 2, 0))
        assert await life.live(case.node_id, Verb.RELEASE) is State.AVAILABLE, await case.message()
        assert [user.username for user in case.front.users.slots.values() if user.enabled] == [bmc.username]
        assert case.front.suites == (3, 17)
        assert await life.live(case.node_id, Verb.DEPLOY, None, **image) is State.DEPLOYED, await case.message()
        case.front.commands.lan.set_parameter(16, b"elsewhere".ljust(18, b"\x00"))
        assert await life.live(case.node_id, Verb.RELEASE) is State.RELEASE_FAILED
        assert "communityString" in await case.message()

    shared.run(scenario)


def test_a_pool_whose_bmcs_have_a_kg_names_where_it_lies(shared: Shared, tmp_path: Path) -> None:
    kg = tmp_path / "kg"
    kg.write_text(secrets.token_hex(8))
    kg.chmod(0o600)

    async def scenario(life: LifeSite) -> None:
        machine, bmc = life.add("two-keys", "ipmi"), life.bmcs["two-keys"]
        bmc.set(kg=SecretStr(kg.read_text()))
        case = Case(life, bmc, machine, await life.enroll("two-keys"))
        assert await life.live(case.node_id, Verb.INSPECT, deep=False) is not State.INSPECTED
        assert "K_g" in await case.message()
        life.site.set_pool(ipmi=Ipmi(kg=f"file:{kg}"))
        assert await life.live(case.node_id, Verb.INSPECT, deep=False) is State.INSPECTED, await case.message()

    shared.run(scenario)
