"""What can be wrong with a BMC or an input: each has its own code and hint, and none blocks another machine."""

from __future__ import annotations

import secrets
import socket

import pytest
from pydantic import SecretStr

from bcmetal.decisions import SECOND, Params, PoolMode
from bcmetal.errors import LAST_ERRORS
from bcmetal.states import Disks, SideVerb, State, Verb
from bcmetal.store import freezes
from bcmetal.workflows.erasing import ERASED_BYTES_PER_S
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import PowerAction, PowerState
from crash.life import LIFE, erased, plant_everywhere
from emulated_site import OnASite, Site, iso_server


async def inspected_to(site: Site, bmc: EmulatedBmc, until: State) -> str:
    """A node taken through its life up to a rest state."""
    node_id = await site.enroll(bmc)
    for chapter in LIFE:
        if await site.state(node_id) is until:
            break
        assert await site.live(node_id, chapter.verb, chapter.params, **chapter.given) is chapter.state
    return node_id


async def code_of(site: Site, node_id: str) -> str:
    node = await site.node(node_id)
    assert node.last_error is not None
    code: str = node.last_error["code"]
    assert code in LAST_ERRORS
    return code


def a_dead_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_a_rejected_password_fails_at_once_and_is_tried_at_most_twice_in_ten_minutes(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await site.enroll(bmc, SecretStr(secrets.token_hex(8)))
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECT_FAILED
        assert await code_of(site, node_id) == "bmc-credentials-rejected"
        await site.live(node_id, Verb.RETRY)
        for _ in range(3):
            await site.live(node_id, Verb.RETRY)
            assert await code_of(site, node_id) == "login-budget"
        assert site.rack.failed_logins(bmc) == 2

    on_a_site(scenario)


def test_new_credentials_are_proven_before_they_are_taken_and_then_may_be_tried_at_once(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await site.enroll(bmc, SecretStr(secrets.token_hex(8)))
        for _ in range(2):
            await site.live(node_id, Verb.INSPECT)
        await site.give_credentials(node_id, bmc.username, bmc.password)
        await site.settle()
        assert await site.live(node_id, Verb.RETRY) is State.INSPECTED

    on_a_site(scenario)


def test_wrong_new_credentials_are_dropped_and_the_old_ones_stay(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await inspected_to(site, bmc, State.INSPECTED)
        operation_id = await site.give_credentials(node_id, bmc.username, SecretStr(secrets.token_hex(8)))
        await site.settle()
        operation = await site.operation(operation_id)
        assert (operation.status, operation.error and operation.error["code"]) == ("failed", "bmc-credentials-rejected")
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED

    on_a_site(scenario)


def test_an_unreachable_bmc_fails_by_its_own_budget_and_blocks_nobody(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        good, away = site.rack.add_redfish("good"), site.rack.add_redfish("away")
        site.rack.start()
        good_id = await site.enroll(good)
        away_id = await site.enroll(away, port=a_dead_port())
        await site.start(away_id, Verb.INSPECT)
        await site.start(good_id, Verb.INSPECT)
        await site.settle()
        assert await site.state(good_id) is State.INSPECTED
        assert await site.state(away_id) is State.INSPECT_FAILED
        node = await site.node(away_id)
        assert await code_of(site, away_id) == "deadline"
        assert node.last_error is not None
        assert "reach" in node.last_error["message"] or "connect" in node.last_error["message"]

    on_a_site(scenario)


def test_a_certificate_that_is_not_the_pinned_one_is_refused_and_no_login_is_tried(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await site.enroll(bmc, trust=("fingerprint", "ab" * 32))
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECT_FAILED
        assert await code_of(site, node_id) == "bmc-certificate-untrusted"
        assert site.rack.sessions(bmc) == 0
        assert site.rack.failed_logins(bmc) == 0

    on_a_site(scenario)


def test_the_first_certificate_is_pinned_where_the_network_says_so(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await site.enroll(bmc, trust=("pin-first", ""))
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        node = await site.node(node_id)
        assert node.bmc is not None
        assert (node.bmc.trust_kind, node.bmc.trust_value) == ("fingerprint", bmc.fingerprint)
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED  # the password still opens under the pin

    on_a_site(scenario)


def test_a_host_that_is_no_redfish_service_is_said_to_be_none(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        with iso_server(b"") as elsewhere:
            port = int(elsewhere.rpartition(":")[2])
            node_id = await site.enroll(bmc, trust=("none", ""), host="127.0.0.1", port=port, scheme="redfish+http")
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECT_FAILED
        assert await code_of(site, node_id) == "bmc-not-this-service"

    on_a_site(scenario)


def test_a_system_id_that_does_not_exist_is_named_with_those_that_do(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await site.enroll(bmc, system_path="/redfish/v1/Systems/nowhere")
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECT_FAILED
        assert await code_of(site, node_id) == "bmc-no-such-system"

    on_a_site(scenario)


@pytest.mark.parametrize(
    ("image", "code"),
    [
        ({"url": "BASE/gone.img", "sha256": "0" * 64}, "image-not-found"),
        ({"url": "BASE/other.iso", "sha256": "0" * 64}, "image-checksum"),
    ],
    ids=["404", "checksum"],
)
def test_an_image_that_is_not_there_costs_the_machine_nothing(
    image: dict[str, str], code: str, on_a_site: OnASite
) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await inspected_to(site, bmc, State.AVAILABLE)
        writes = len(site.rack.writes)
        with iso_server(b"an image") as base:
            given = {**image, "url": image["url"].replace("BASE", base)}
            assert await site.live(node_id, Verb.DEPLOY, image=given, kind="iso") is State.AVAILABLE
        assert await code_of(site, node_id) == code
        assert [w for w in site.rack.writes[writes:] if w.kind == "effect"] == []

    on_a_site(scenario)


def test_an_erase_that_is_claimed_and_can_be_seen_to_be_none_fails(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await inspected_to(site, bmc, State.INSPECTED)
        plant_everywhere(bmc)
        site.rack.rule(Rule(action="says_erased", bmc="m1", lie="visible"))
        assert await site.live(node_id, Verb.COMMISSION) is State.COMMISSION_FAILED
        assert await code_of(site, node_id) == "erase-not-verified"
        assert (await site.node(node_id)).facts.disks is Disks.HALF

    on_a_site(scenario)


def test_an_erase_that_cannot_be_seen_through_is_recorded_as_the_bmcs_word(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await inspected_to(site, bmc, State.INSPECTED)
        plant_everywhere(bmc)
        site.rack.rule(Rule(action="says_erased", bmc="m1", lie="hidden"))
        assert await site.live(node_id, Verb.COMMISSION) is State.AVAILABLE
        records = await site.erasure_records(node_id)
        assert {record["serial"] for record in records} == set(bmc.machine.drives)
        assert {record["verifier"] for record in records} == {"bmc"}

    on_a_site(scenario)


def test_without_an_erase_the_node_says_so(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        plant_everywhere(bmc)
        node_id = await inspected_to(site, bmc, State.AVAILABLE)
        node = await site.node(node_id)
        assert node.facts.not_erased
        assert node.facts.disks is Disks.FOREIGN
        assert all(drive.holds_data for drive in bmc.machine.drives.values())

    on_a_site(scenario, erase='"none"')


def test_a_frozen_pool_holds_every_act_and_the_budget_stands_still(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await inspected_to(site, bmc, State.INSPECTED)
        plant_everywhere(bmc)
        bmc.machine.set_power(PowerAction.ON)
        await site.store.write(freezes.set, "pool", "pool-a", "cooling works", "key:test", site.clock.now())
        operation_id = await site.start(node_id, Verb.COMMISSION)
        for _ in range(50):
            await site.advance()
        assert await site.state(node_id) is State.COMMISSIONING
        operation = await site.operation(operation_id)
        assert "cooling works" in (operation.waiting_for or "")
        assert bmc.machine.power is PowerState.ON
        await site.store.write(freezes.lift, "pool", "pool-a")
        await site.settle()
        assert await site.state(node_id) is State.AVAILABLE
        assert erased(bmc, 0) == []

    on_each_database(scenario)


@pytest.mark.parametrize(
    "rule",
    [
        Rule(action="delay", seconds=0.005),
        Rule(action="drop_before", times=5),
        Rule(action="drop_after", method="POST", times=3),
        Rule(action="expire_sessions", method="GET", after=5, times=3),
        Rule(action="refuse", method="POST", path="Actions|Sessions", status=503, times=3),
        Rule(action="task", method="POST", path="Reset|InsertMedia|EjectMedia", seconds=0.2),
        Rule(action="etag"),
        Rule(action="page", n=1),
        Rule(action="html", times=3, status=502),
        Rule(action="cut", times=6),
    ],
    ids=lambda rule: rule.action,
)
def test_a_whole_life_on_a_bmc_that_misbehaves(rule: Rule, on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        number = site.rack.rule(rule)
        node_id = await site.enroll(bmc)
        for chapter in LIFE:
            if chapter.plant:
                plant_everywhere(bmc)
            boots = len(bmc.machine.boots)
            state = await site.live(node_id, chapter.verb, chapter.params, **chapter.given)
            assert state is chapter.state, (await site.node(node_id)).last_error
            assert chapter.judge(bmc, boots) == []
        assert site.rack.fired(number) > 0 or rule.action == "etag"  # counted only where a PATCH came without If-Match

    on_a_site(scenario)


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ("on", PowerState.OFF, PowerState.ON),
        ("off", PowerState.ON, PowerState.OFF),
        ("softOff", PowerState.ON, PowerState.OFF),
        ("cycle", PowerState.ON, PowerState.ON),
    ],
)
@pytest.mark.parametrize("kind", ["redfish", "ipmi"])
def test_power_is_set_and_seen(
    kind: str, action: str, before: PowerState, after: PowerState, on_a_site: OnASite
) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1") if kind == "redfish" else site.rack.add_ipmi("m1")
        site.rack.start()
        node_id = await inspected_to(site, bmc, State.INSPECTED)
        if before is PowerState.ON:
            bmc.machine.set_power(PowerAction.ON)
        boots = len(bmc.machine.boots)
        operation_id = await site.queue(node_id, SideVerb.SET_POWER, action=action)
        await site.settle()
        assert (await site.operation(operation_id)).status == "done"
        assert bmc.machine.power is after
        assert len(bmc.machine.boots) - boots == (1 if action in ("on", "cycle") else 0)

    on_a_site(scenario)


def test_an_ipmi_machine_goes_through_its_life_without_deploy_and_rescue(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_ipmi("m1")
        site.rack.start()
        node_id = await site.enroll(bmc)
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        assert await site.live(node_id, Verb.COMMISSION) is State.AVAILABLE
        assert await site.live(node_id, Verb.RETIRE) is State.RETIRED
        node = await site.node(node_id)
        assert node.facts.not_erased
        assert bmc.machine.power is PowerState.OFF

    on_each_database(scenario, erase='"none"')


def test_maintenance_lets_a_verb_wait_and_go_on_afterwards(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await inspected_to(site, bmc, State.INSPECTED)
        await site.set_node(node_id, maintenance=True)
        await site.start(node_id, Verb.COMMISSION)
        requests = len(site.rack.writes)
        await site.settle()
        assert await site.state(node_id) is State.COMMISSIONING
        assert len(site.rack.writes) == requests
        await site.set_node(node_id, maintenance=False)
        await site.settle()
        assert await site.state(node_id) is State.AVAILABLE

    on_a_site(scenario)


def test_a_foreign_machine_that_runs_is_left_running_until_somebody_confirms(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        bmc.machine.set_power(PowerAction.ON)
        node_id = await inspected_to(site, bmc, State.INSPECTED)
        assert site.refusal(await site.node(node_id), Verb.COMMISSION, Params()) == "needs-confirm-erase"
        assert bmc.machine.power is PowerState.ON
        assert [w for w in site.rack.writes if w.kind == "effect"] == []

    on_a_site(scenario)


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        ("OSRunning", State.DEPLOYED),
        ("SystemHardwareInitializationComplete", State.DEPLOY_FAILED),
        (None, State.DEPLOY_FAILED),
    ],
    ids=["running", "stuck", "untold"],
)
def test_a_deploy_waits_for_the_sign_of_life_that_the_pool_names(
    shown: str | None, state: State, on_a_site: OnASite
) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        bmc.set(boot_progress=shown)
        node_id = await inspected_to(site, bmc, State.AVAILABLE)
        site.set_pool(sign_of_life="bootProgress")
        assert await site.live(node_id, Verb.DEPLOY, image={"name": "os"}, kind="iso") is state
        if state is State.DEPLOY_FAILED:
            assert await code_of(site, node_id) == "no-sign-of-life"
            assert bmc.machine.power is PowerState.OFF
            assert bmc.machine.media is None

    on_a_site(scenario)


def test_a_pool_that_only_observes_is_looked_at_and_never_written_to(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        site.set_pool(mode=PoolMode.OBSERVE)
        node_id = await inspected_to(site, bmc, State.INSPECTED)
        node = await site.node(node_id)
        assert site.refusal(node, Verb.COMMISSION, Params(confirm_erase=node.facts.serial)) == "observe-mode"
        assert [w for w in site.rack.writes if w.kind == "effect"] == []

    on_a_site(scenario)


def test_a_pool_that_becomes_an_observer_ends_what_was_under_way(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await inspected_to(site, bmc, State.INSPECTED)
        bmc.machine.set_power(PowerAction.ON)
        await site.start(node_id, Verb.COMMISSION)
        site.set_pool(mode=PoolMode.OBSERVE)
        await site.settle()
        assert await code_of(site, node_id) == "observe-mode"
        assert await site.state(node_id) is State.INSPECTED
        assert bmc.machine.power is PowerState.ON

    on_a_site(scenario)


def test_two_systems_behind_one_bmc_live_side_by_side(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("blades", systems=2)
        site.rack.start()
        paths = [f"/redfish/v1/Systems/{system}" for system in bmc.by_system]
        ids = [await site.enroll(bmc, system_path=path, name=f"blade-{n}") for n, path in enumerate(paths)]
        for chapter in LIFE:
            for node_id in ids:
                await site.start(node_id, chapter.verb, chapter.params, **chapter.given)
            await site.settle()
            for node_id in ids:
                assert await site.state(node_id) is chapter.state, (await site.node(node_id)).last_error
        assert [len(machine.boots) for machine in bmc.machines] == [3, 3]
        await site.lines.close_idle(older_s=-1.0)
        assert site.rack.sessions(bmc) == 0

    on_each_database(scenario)


def test_an_erase_adds_its_own_estimate_to_the_budget_once(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await inspected_to(site, bmc, State.INSPECTED)
        largest = max(drive.capacity_bytes for drive in bmc.machine.drives.values())
        operation_id = await site.start(node_id, Verb.COMMISSION)
        before = (await site.operation(operation_id)).budget_us
        await site.settle()
        after = (await site.operation(operation_id)).budget_us
        assert after - before == largest // ERASED_BYTES_PER_S * SECOND

    on_a_site(scenario)
