"""BMCs with the password of their label: found without spending it, spent on one machine, and claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import chain, count
from pathlib import Path

import pytest

from bcmetal.states import State, Verb
from bcmetal_drivers.emulated.accounts import Account
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.ipmi import IpmiFront
from bcmetal_drivers.emulated.ipmi_accounts import UserSlot
from bcmetal_drivers.emulated.rack import EmulatedBmc
from crash.effects import Crashed, Effects, MortalStore
from credentials.bmc_secrets import stored
from credentials.listed import OURS, a_list, a_listed_site, enroll_by, label_of
from emulated_site import Site


def on_a_listed_site(folder: Path, scenario: Callable[[Site], Awaitable[None]], **kwargs: str) -> None:
    async def whole() -> None:
        async with a_listed_site(folder, **kwargs) as site:
            await scenario(site)

    asyncio.run(whole())


def accounts(bmc: EmulatedBmc) -> dict[str, tuple[str, bool]]:
    """Password and whether it is enabled, by user name."""
    slots: Iterable[Account | UserSlot]
    if isinstance(bmc.front, RedfishFront):
        slots = bmc.front.accounts.slots.values()
    else:
        assert isinstance(bmc.front, IpmiFront)
        slots = bmc.front.users.slots.values()
    return {a.username: (a.password.get_secret_value(), a.enabled) for a in slots if a.username}


@pytest.mark.parametrize("protocol", ["redfish", "ipmi"])
def test_a_bmc_of_the_list_gets_an_account_of_ours_and_its_labels_is_switched_off(
    protocol: str, tmp_path: Path
) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1") if protocol == "redfish" else site.rack.add_ipmi("m1")
        site.rack.start()
        a_list(tmp_path / "labels.csv", [label_of(bmc, "SER1234"), ("", "OTHER99", "admin", "another password")])
        node_id = await enroll_by(site, bmc, "factory", {"serial": "SER1234"})
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED, (await site.node(node_id)).last_error
        password, enabled = accounts(bmc)[OURS]
        assert enabled
        assert await stored(site, node_id) == {"current.password": password}
        assert not accounts(bmc)[bmc.username][1]
        node = await site.node(node_id)
        assert node.bmc is not None
        assert node.bmc.cred_ref is None
        assert site.rack.failed_logins(bmc) == 0
        assert (await site.conditions(node_id))["identity"] == ("warning", "label-of-another")  # it says another serial
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        assert "identity" not in await site.conditions(node_id)

    on_a_listed_site(tmp_path, scenario)


def test_an_account_that_is_refused_for_its_password_is_tried_with_others(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        refusal = Rule(
            action="refuse", method="POST", path="/Accounts$", times=2, status=400, message="Not this password."
        )
        number = site.rack.rule(refusal)
        # and the label's account can be neither switched off nor removed: it gets a password that nobody knows
        for method, path in (("PATCH", "/Accounts/1$"), ("DELETE", "/Accounts/1$")):
            site.rack.rule(
                Rule(action="refuse", method=method, path=path, times=1, status=400, message="Fixed account.")
            )
        before = bmc.password.get_secret_value()
        a_list(tmp_path / "labels.csv", [label_of(bmc, "SER1234")])
        node_id = await enroll_by(site, bmc, "factory", {"serial": "SER1234"})
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED, (await site.node(node_id)).last_error
        assert site.rack.fired(number) == 2
        assert await stored(site, node_id) == {"current.password": accounts(bmc)[OURS][0]}
        password, enabled = accounts(bmc)[bmc.username]
        assert not enabled or password != before

    on_a_listed_site(tmp_path, scenario)


def test_a_line_is_found_by_what_the_bmc_tells_everybody(tmp_path: Path) -> None:
    """Dell iDRAC 9 shows Oem.Dell.ServiceTag in its service root."""

    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        tag = bmc.machine.hardware.sku  # Dell's is the SKU
        bmc.overlay({"/redfish/v1": {"Oem": {"Dell": {"ServiceTag": tag}}}})
        a_list(tmp_path / "labels.csv", [label_of(bmc, tag), ("", f"{tag}A", "admin", "another password")])
        node_id = await enroll_by(site, bmc, "factory")
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED, (await site.node(node_id)).last_error
        assert OURS in accounts(bmc)
        assert site.rack.failed_logins(bmc) == 0
        assert "identity" not in await site.conditions(node_id)

    on_a_listed_site(tmp_path, scenario)


def test_no_password_is_spent_where_no_line_or_several_are_the_bmcs(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await enroll_by(site, bmc, "factory")
        for hint, lines in ((None, ["SER1234"]), ("SER1234 SER5678", ["SER1234", "SER5678"])):
            bmc.overlay({"/redfish/v1": {"Name": hint}})
            a_list(tmp_path / "labels.csv", [label_of(bmc, serial) for serial in lines])
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECT_FAILED
            error = (await site.node(node_id)).last_error
            assert error is not None
            assert error["code"] == "label-not-found"
        assert site.rack.failed_logins(bmc) == 0
        assert not [w for w in site.rack.writes if w.bmc == bmc.name]

    on_a_listed_site(tmp_path, scenario)


def test_a_line_is_spent_on_one_bmc_alone(tmp_path: Path) -> None:
    """Whoever says another machine's serial at an address of their own gets nothing once that machine was met."""

    async def scenario(site: Site) -> None:
        bmc, rogue = site.rack.add_redfish("m1"), site.rack.add_redfish("rogue")
        site.rack.start()
        a_list(tmp_path / "labels.csv", [label_of(bmc, "SER1234")])
        node_id = await enroll_by(site, bmc, "factory", {"serial": "SER1234"})
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        rogue.overlay({"/redfish/v1": {"Oem": {"Serial": "SER1234"}}})
        rogue_id = await enroll_by(site, rogue, "factory")
        assert await site.live(rogue_id, Verb.INSPECT) is State.INSPECT_FAILED
        assert not [w for w in site.rack.writes if w.bmc == rogue.name]
        assert site.rack.failed_logins(rogue) == 0

    on_a_listed_site(tmp_path, scenario)


def test_a_label_whose_password_must_be_changed_first_is_claimed_too(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        assert isinstance(bmc.front, RedfishFront)
        bmc.front.accounts.slots["1"].must_change = True
        a_list(tmp_path / "labels.csv", [label_of(bmc, "SER1234")])
        node_id = await enroll_by(site, bmc, "factory", {"serial": "SER1234"})
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED, (await site.node(node_id)).last_error
        assert await stored(site, node_id) == {"current.password": accounts(bmc)[OURS][0]}
        assert not accounts(bmc)[bmc.username][1]
        assert site.rack.failed_logins(bmc) == 0

    on_a_listed_site(tmp_path, scenario)


def test_nodes_behind_one_bmc_claim_it_once(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("chassis", systems=3)
        site.rack.start()
        a_list(tmp_path / "labels.csv", [label_of(bmc, "SER1234")])
        ids = [await enroll_by(site, bmc, "factory", {"serial": "SER1234"}, system=system) for system in bmc.by_system]
        for node_id in ids:
            await site.start(node_id, Verb.INSPECT)
        await site.settle()
        for node_id in ids:
            assert await site.state(node_id) is State.INSPECTED, (await site.node(node_id)).last_error
            assert await stored(site, node_id) == {"current.password": accounts(bmc)[OURS][0]}
        assert len([w for w in site.rack.writes if w.path.endswith("/Accounts") and w.method == "POST"]) == 1
        assert site.rack.failed_logins(bmc) == 0

    on_a_listed_site(tmp_path, scenario)


def test_a_label_stays_in_use_where_nothing_is_to_be_claimed(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        a_list(tmp_path / "labels.csv", [label_of(bmc, "SER1234")])
        node_id = await enroll_by(site, bmc, "factory", {"serial": "SER1234"})
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        assert list(accounts(bmc)) == [bmc.username]
        assert await stored(site, node_id) == {"current.password": accounts(bmc)[bmc.username][0]}

    on_a_listed_site(tmp_path, scenario, on_enroll="")


def test_a_claim_killed_after_any_effect_ends_with_the_account_that_is_stored(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        effects = Effects(site.rack, site.store)
        site.engines_store = MortalStore(site.store, effects)
        await site.restart()
        for at in chain((3, 4), count(8)):  # the line is bound and sealed; what lies between only reads
            bmc = site.rack.add_redfish(f"m{at}")
            site.rack.start()
            serial = f"SER{1000 + at}"
            a_list(tmp_path / "labels.csv", [label_of(bmc, serial)])
            node_id = await enroll_by(site, bmc, "factory", {"serial": serial})
            await site.start(node_id, Verb.INSPECT)
            effects.begin(at)
            with suppress(Crashed):
                await site.settle()
            died, last = effects.dead, effects.seen[-1]
            effects.begin()
            await site.restart()
            await site.settle()
            assert await site.state(node_id) is State.INSPECTED, (last, (await site.node(node_id)).last_error)
            assert await stored(site, node_id) == {"current.password": accounts(bmc)[OURS][0]}, last
            assert not accounts(bmc)[bmc.username][1], last
            assert site.rack.failed_logins(bmc) <= 2, last
            if not died:
                break
        assert at > 20

    on_a_listed_site(tmp_path, scenario)
