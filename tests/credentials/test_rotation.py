"""A BMC's password is rotated: at every moment the store knows one that works, and nobody is locked out on the way."""

from __future__ import annotations

import re
import secrets

import pytest
from pydantic import SecretStr

from bcmetal.line import Lines
from bcmetal.login_budget import BeingChanged
from bcmetal.states import SideVerb, State, Verb
from bcmetal.sweeps import sweep
from bcmetal_drivers.capabilities import Power, need
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.rack import EmulatedBmc, Write
from bcmetal_drivers.emulated.replies import Reply
from credentials.bmc_secrets import present, rotate, stored
from emulated_site import OnASite, Site

ACCOUNT = r"/AccountService/Accounts/1$"


async def a_node(site: Site, protocol: str = "redfish") -> tuple[str, EmulatedBmc]:
    bmc = site.rack.add_redfish("m1") if protocol == "redfish" else site.rack.add_ipmi("m1")
    site.rack.start()
    node_id = await site.enroll(bmc)
    assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
    return node_id, bmc


@pytest.mark.parametrize("protocol", ["redfish", "ipmi"])
def test_a_rotation_gives_the_bmc_a_random_password_that_only_the_store_knows(
    protocol: str, on_a_site: OnASite
) -> None:
    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site, protocol)
        before = present(bmc)
        assert (await rotate(site, node_id)).status == "done"
        assert present(bmc) != before
        assert len(present(bmc).encode()) == 20
        assert await stored(site, node_id) == {"current.password": present(bmc)}
        assert site.rack.failed_logins(bmc) == 0
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED  # the machine's way goes on with it
        assert (await rotate(site, node_id)).status == "done"
        assert site.rack.failed_logins(bmc) == 0

    on_a_site(scenario)


def test_a_lost_answer_is_found_out_by_a_login_with_the_new_password_first(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site)
        site.rack.rule(Rule(action="drop_after", method="PATCH", path=ACCOUNT, times=1))
        assert (await rotate(site, node_id)).status == "done"
        assert await stored(site, node_id) == {"current.password": present(bmc)}
        assert site.rack.failed_logins(bmc) == 0

    on_a_site(scenario)


def test_a_change_that_never_arrived_is_sent_again(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site)
        before = present(bmc)
        site.rack.rule(Rule(action="drop_before", method="PATCH", path=ACCOUNT, times=1))
        assert (await rotate(site, node_id)).status == "done"
        assert present(bmc) != before
        assert await stored(site, node_id) == {"current.password": present(bmc)}
        assert site.rack.failed_logins(bmc) <= 2

    on_a_site(scenario)


def test_a_bmc_that_acknowledges_and_does_not_change_keeps_the_old_password(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site)
        before = present(bmc)
        site.rack.rule(Rule(action="ignore", method="PATCH", path=ACCOUNT))
        ended = await rotate(site, node_id)
        assert ended.status == "failed"
        assert ended.error is not None
        assert ended.error["code"] == "bmc-not-as-asked"
        assert present(bmc) == before
        assert (await stored(site, node_id))["current.password"] == before
        assert site.rack.failed_logins(bmc) == 1
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED

    on_a_site(scenario)


def test_a_bmc_that_acknowledges_first_and_changes_afterwards_is_waited_for(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site)
        before = present(bmc)
        site.rack.rule(Rule(action="ignore", method="PATCH", path=ACCOUNT, times=1))
        operation_id = await site.queue(node_id, SideVerb.ROTATE_BMC_CREDENTIALS)

        async def late() -> None:
            if (await site.operation(operation_id)).memo.get("rotate_looked") and present(bmc) == before:
                bmc.change_password(SecretStr((await stored(site, node_id))["rotating.password"]))

        site.beside.append(late)
        await site.settle()
        assert (await site.operation(operation_id)).status == "done"
        assert present(bmc) != before
        assert await stored(site, node_id) == {"current.password": present(bmc)}
        assert site.rack.failed_logins(bmc) == 2

    on_a_site(scenario)


def test_a_password_that_a_bmc_refuses_is_followed_by_others(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site)
        history = "The password was used before (password history)."
        site.rack.rule(
            Rule(
                action="refuse",
                method="PATCH",
                path=ACCOUNT,
                times=2,
                status=400,
                code="PropertyValueError",
                message=history,
            )
        )
        assert (await rotate(site, node_id)).status == "done"
        assert await stored(site, node_id) == {"current.password": present(bmc)}
        assert re.search(r"[_-]", present(bmc))
        assert site.rack.failed_logins(bmc) == 0
        site.rack.rule(
            Rule(action="refuse", method="PATCH", path=ACCOUNT, status=400, code="PropertyValueError", message=history)
        )
        before = present(bmc)
        ended = await rotate(site, node_id)
        assert (ended.status, ended.error and ended.error["code"]) == ("failed", "bmc-refused")
        assert ended.error is not None
        assert "password history" in ended.error["message"]
        assert await stored(site, node_id) == {"current.password": before}

    on_a_site(scenario)


@pytest.mark.parametrize("status", [400, 405, 500])
def test_a_change_that_is_refused_and_done_all_the_same_is_found_out(status: int, on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site)
        before = present(bmc)
        lie = Reply(status=status, code="GeneralError", applied=True)
        site.rack.rule(Rule(method="PATCH", path=ACCOUNT, answer=lie))
        ended = await rotate(site, node_id)
        assert present(bmc) != before
        assert present(bmc) in (await stored(site, node_id)).values(), ended.error
        if ended.status != "done":
            assert (await rotate(site, node_id)).status == "done"
        assert (await stored(site, node_id))["current.password"] == present(bmc)
        assert site.rack.failed_logins(bmc) <= 2

    on_a_site(scenario)


def test_an_ipmi_bmc_that_keeps_sixteen_bytes_gets_sixteen(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site, "ipmi")
        bmc.set(password_bytes=16)
        assert (await rotate(site, node_id)).status == "done"
        assert len(present(bmc)) == 16
        assert await stored(site, node_id) == {"current.password": present(bmc)}

    on_a_site(scenario)


def test_a_redfish_bmc_that_keeps_sixteen_bytes_in_silence_is_not_lost(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site)
        assert isinstance(bmc.front, RedfishFront)
        account = bmc.front.accounts.slots["1"]

        def cut(write: Write) -> None:
            if re.search(ACCOUNT, write.path):
                account.password = SecretStr(account.password.get_secret_value()[:16])

        site.rack.on_write = cut
        ended = await rotate(site, node_id)
        assert (ended.status, ended.error) == ("done", None)
        kept = account.password.get_secret_value()
        assert len(kept) == 16
        assert await stored(site, node_id) == {"current.password": kept}
        assert site.rack.failed_logins(bmc) == 3  # two, and ten minutes later another one

    on_a_site(scenario)


def test_nodes_behind_one_bmc_share_its_rotation(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("chassis", systems=2)
        site.rack.start()
        first, second = [
            await site.enroll(bmc, name=f"blade-{n}", system_path=f"/redfish/v1/Systems/{system}")
            for n, system in enumerate(bmc.by_system)
        ]
        for node_id in (first, second):
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        asked = [await site.queue(node_id, SideVerb.ROTATE_BMC_CREDENTIALS) for node_id in (first, second)]
        await site.settle()
        assert [(await site.operation(one)).status for one in asked] == ["done", "done"]
        changes = [w for w in site.rack.writes if re.search(ACCOUNT, w.path)]
        assert len(changes) == 1
        for node_id in (first, second):
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        assert site.rack.failed_logins(bmc) == 0

    on_a_site(scenario)


def test_sweeps_leave_a_bmc_alone_while_its_password_is_changed(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site)
        operation_id = await site.queue(node_id, SideVerb.ROTATE_BMC_CREDENTIALS)
        assert await site.engine.tick()  # sealed, or already through
        while (await site.operation(operation_id)).ended_at is None:
            if "rotating.password" in await stored(site, node_id):
                site.clock.skip_to(type(site.clock.now())(site.clock.now() + 120_000_000))
                assert await sweep(site.engine.doors, site.lines, "test-daemon") == 0
            await site.advance()
        assert site.rack.failed_logins(bmc) == 0
        site.clock.skip_to(type(site.clock.now())(site.clock.now() + 120_000_000))
        assert await sweep(site.engine.doors, site.lines, "test-daemon") == 1

    on_a_site(scenario)


def test_somebody_who_waited_with_the_old_password_does_not_log_in_with_it(on_a_site: OnASite) -> None:
    """Another daemon read the node before the rotation, and calls after it."""

    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site)
        other = Lines(site.store, site.clock, site.vault, lambda: site.settings)
        work = await site.peek(node_id)
        line = other.to(work, site.settings.pools[work.node.pool_id], "")
        try:
            assert (await rotate(site, node_id)).status == "done"
            with pytest.raises(BeingChanged):
                await line.call(need(line.bmc, Power).power_state)
            assert site.rack.failed_logins(bmc) == 0
        finally:
            await other.close()

    on_a_site(scenario)


def test_a_password_that_was_left_is_found_by_the_next_rotation(on_a_site: OnASite) -> None:
    """The BMC took it after all, long after the rotation had given up."""

    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site)
        rule = site.rack.rule(Rule(action="ignore", method="PATCH", path=ACCOUNT))
        assert (await rotate(site, node_id)).status == "failed"
        site.rack.clear(rule)
        left = (await stored(site, node_id))["left.password"]
        bmc.change_password(SecretStr(left))
        site.clock.skip_to(type(site.clock.now())(site.clock.now() + 700_000_000))
        assert (await rotate(site, node_id)).status == "done"
        assert await stored(site, node_id) == {"current.password": left}
        assert present(bmc) == left
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED

    on_a_site(scenario)


def test_an_account_that_the_bmc_does_not_list_is_not_guessed(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, _ = await a_node(site)
        site.rack.rule(Rule(action="garbage", method="GET", path=r"/AccountService/Accounts$", body='{"Members": []}'))
        ended = await rotate(site, node_id)
        assert (ended.status, ended.error and ended.error["code"]) == ("failed", "bmc-refused")
        assert [w for w in site.rack.writes if re.search(ACCOUNT, w.path)] == []

    on_a_site(scenario)


def test_a_refusal_that_comes_once_is_not_taken_for_a_wrong_password(on_a_site: OnASite) -> None:
    """HPE iLO and NVIDIA GB200 now and then answer a good login with 401."""

    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site)
        await site.lines.close_idle(0)
        site.rack.rule(
            Rule(action="refuse", method="POST", path="/Sessions", times=1, status=401, message="Unauthorized")
        )
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        assert "credentials" not in await site.conditions(node_id)
        bmc.change_password(SecretStr(secrets.token_hex(8)))
        await site.lines.close_idle(0)
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECT_FAILED
        assert (await site.conditions(node_id))["credentials"] == ("error", "rejected")
        assert site.rack.failed_logins(bmc) <= 2

    on_a_site(scenario)
