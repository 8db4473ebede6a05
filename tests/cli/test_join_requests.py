"""`bcmetal request` and `bcmetal joined` against the application itself, over TLS."""

from __future__ import annotations

import secrets

from bcmetal.cli.evidence import compare, tpm_pairs
from cli.join_door import Door
from join.site import Box, a_box

NO_UUID = Box(None, "SN00077X", ("3c:ec:ef:10:00:77",))


def waiting(door: Door, box: Box = NO_UUID) -> str:
    """A machine whose join was deferred; the request's id."""
    answer = door.site.join(door.site.token(), box)
    assert answer.status == 202, answer.raw
    return str(answer.doc["requestId"])


# ---------------------------------------------------------------- request


def test_a_request_is_shown_approved_and_then_the_machine_joins(door: Door) -> None:
    bearer = door.site.token()
    assert door.site.join(bearer, NO_UUID).status == 202
    (record,) = door.run("request", "list", "--json").doc["requests"]
    assert "placeholder-identifiers" in door.run("request", "list").out
    shown = door.run("request", "show", record["requestId"]).out
    assert "SN00077X" in shown
    assert record["csrSha256"] in shown
    assert "nothing but its own word speaks for it" in shown
    refused = door.run("request", "approve", record["requestId"], stdin="n\n")
    assert refused.code == 1
    assert door.site.join(bearer, NO_UUID).status == 202
    approved = door.run("request", "approve", record["requestId"], stdin="y\n")
    assert approved.code == 0, approved.err
    assert "approved by key:owner" in approved.out
    assert door.site.join(bearer, NO_UUID).status == 200
    assert "consumed" in door.run("request", "list", "--all").out
    late = door.run("request", "deny", record["requestId"])
    assert late.code == 1
    assert "INVALID_STATE" in late.err


def test_nobody_is_let_in_without_an_answer(door: Door) -> None:
    request_id = waiting(door)
    assert door.run("request", "approve", request_id, stdin="").code == 1
    assert door.run("request", "show", request_id, "--json").doc["state"] == "pending"


def test_an_approval_is_of_the_csr_that_was_shown(door: Door) -> None:
    request_id = waiting(door)
    other = door.run("request", "approve", request_id, "--yes", "--csr-sha256", "0" * 64)
    assert other.code == 1
    assert "CONFLICT" in other.err
    assert door.run("request", "approve", request_id, "--yes", "--csr-sha256", "xyz").code == 2
    right = door.run("request", "show", request_id, "--json").doc["csrSha256"]
    approved = door.run("request", "approve", request_id, "--yes", "--json", "--csr-sha256", f"SHA256:{right.upper()}")
    assert approved.doc["state"] == "approved"


def test_a_denial_keeps_its_reason(door: Door) -> None:
    request_id = waiting(door)
    assert "denied by key:owner" in door.run("request", "deny", request_id, "--reason", "not ours").out
    assert "not ours" in door.run("request", "show", request_id).out
    assert door.run("request", "list").out == ""


def test_a_request_of_another_pool_is_not_found(door: Door) -> None:
    request_id = waiting(door)
    assert door.run("request", "show", request_id, pool="open").code == 4
    assert door.run("request", "approve", request_id, "--yes", pool="open").code == 4


def test_the_evidence_stands_side_by_side_with_differences_marked(door: Door) -> None:
    known = a_box(5)
    door.site.enrolled(known, state="deployed")
    joined_before = door.site.admitted(known)
    twin = Box(known.uuid, "SN99999X", ("3c:ec:ef:99:00:05",))
    request_id = waiting(door, twin)
    shown = door.run("request", "show", request_id).out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(
        line.startswith("why duplicate-uuid: another node has its product UUID and not the rest") for line in lines
    )
    assert f"product UUID {known.uuid} yes" in " ".join(lines)
    assert any(line.startswith("serial SN99999X yes") and line.endswith(f"{known.serial} ≠") for line in lines)
    assert any(line.startswith("product UUID") and line.endswith(f"{known.uuid} =") for line in lines)
    assert any(line.startswith("MAC not claimed") and line.endswith(f"{known.macs[0]} ≠") for line in lines)
    assert any(line.startswith("MAC 3c:ec:ef:99:00:05 yes") and line.endswith("not among them ≠") for line in lines)
    assert "3 differences" in shown
    assert joined_before.node_id


def test_text_from_a_machine_carries_no_markup(door: Door) -> None:
    request_id = waiting(door, Box(None, "[red]SN77X[/red][link=x]", ("3c:ec:ef:10:00:78",)))
    for words in (("request", "show", request_id), ("request", "list")):
        assert "[red]SN77X[/red][link=x]" in door.run(*words).out


# ---------------------------------------------------------------- joined


def test_a_machine_that_joined_is_listed_shown_and_put_out(door: Door) -> None:
    member = door.site.admitted(a_box())
    listed_ = door.run("joined", "list").out
    for part in (member.node_id, "platform", "none", "key:owner"):
        assert part in listed_
    shown = door.run("joined", "show", member.node_id).out
    assert str(a_box().serial) in shown
    assert "certificates:" in shown
    assert door.run("joined", "evict", member.node_id, stdin="n\n").code == 1
    assert door.site.renew(member, a_box().rekeyed()).status == 200
    gone = door.run("joined", "evict", member.node_id, "--reason", "stolen", stdin="y\n")
    assert gone.code == 0, gone.err
    assert "stolen" in gone.out
    assert "nothing to rotate" in gone.out
    assert door.site.renew(member, a_box().rekeyed()).status == 401


def test_an_eviction_tells_what_to_rotate(door: Door) -> None:
    secret = door.folder / "registry"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_urlsafe(16))
    door.site.change(lambda doc: doc["sites"]["fra1"].update(secrets={"registry": f"file:{secret}"}))
    member = door.site.admitted(a_box())
    given = door.site.secrets_for(member, "registry")
    assert given.status == 200, given.raw
    gone = door.run("joined", "evict", member.node_id, "--yes")
    assert gone.out.splitlines()[-2:] == ["rotate what it was given:", "  registry"]
    assert secret.read_text() not in gone.out + door.run("joined", "show", member.node_id).out
    again = door.run("joined", "evict", member.node_id, "--yes", "--json").doc
    assert again["rotate"] == ["registry"]


def test_a_machine_of_nobody_is_not_found(door: Door) -> None:
    assert door.run("joined", "evict", "nd_" + "0" * 26, "--yes").code == 4
    assert door.run("joined", "show", "not-an-id").code == 2
    assert door.run("joined", "list").out == ""


# ---------------------------------------------------------------- the comparison


def _said(kind: str, value: str, *holders: str, usable: bool = True) -> dict[str, object]:
    return {"kind": kind, "value": value, "usable": usable, "conflicts": list(holders)}


def _reported(name: str, *identifiers: tuple[str, str]) -> dict[str, object]:
    found = [{"kind": kind, "value": value, "usable": True, "source": "bmc"} for kind, value in identifiers]
    return {"nodeId": f"nd_{name}", "name": name, "state": "deployed", "identifiers": found}


def test_a_uuid_in_the_other_byte_order_and_another_case_are_no_difference() -> None:
    claimed = [_said("uuid", "00112233-4455-6677-8899-AABBCCDDEEFF", "nd_a", "nd_gone"), _said("serial", " sn1X")]
    node = _reported("a", ("uuid", "33221100-5544-7766-8899-aabbccddeeff"), ("serial", "SN1x"))
    found = compare({"identifiers": claimed, "reported": [node], "tpm": None})
    assert found.differing == 0
    assert found.rows[0][3:] == ("a, nd_gone", "33221100-5544-7766-8899-aabbccddeeff =")
    assert found.columns[-1] == "a (deployed): its BMC"


def test_each_node_has_its_own_column_and_what_a_bmc_does_not_report_is_no_difference() -> None:
    claimed = [_said("uuid", "0" * 32, usable=False), _said("mac", "3c:ec:ef:00:00:01")]
    one, two = (
        _reported("a", ("mac", "3C:EC:EF:00:00:01")),
        _reported("b", ("serial", "SN2"), ("mac", "3c:ec:ef:00:00:02")),
    )
    found = compare({"identifiers": claimed, "reported": [one, two], "tpm": None})
    assert [row[-2:] for row in found.rows] == [
        ("not reported", "not reported"),
        ("", "SN2 ≠"),
        ("3C:EC:EF:00:00:01 =", "not among them ≠"),
        ("", "3c:ec:ef:00:00:02 ≠"),
    ]
    assert found.rows[0][2] == "NO: a placeholder"
    assert found.differing == 3


def test_what_the_tpm_proved_is_told_with_what_speaks_against_it() -> None:
    proven = {"ekSha256": "ab" * 32, "vendor": None, "allowed": False}
    told = dict(tpm_pairs({"identifiers": [], "reported": [], "tpm": proven}))
    assert told["TPM's EK"] == "sha256:" + "ab" * 32
    assert told["signed by"] == "no TPM maker that is known here"
    assert str(told["allowed"]).startswith("NO")
    allowed = dict(tpm_pairs({"tpm": {**proven, "vendor": "CN=Maker", "allowed": True}}))
    assert allowed["signed by"] == "CN=Maker"
    assert str(allowed["allowed"]).startswith("yes")
    assert tpm_pairs({"tpm": None}) == [("TPM", "none shown")]
