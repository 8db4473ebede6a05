"""`bcmetal token` against the application itself, over TLS."""

from __future__ import annotations

import json
import secrets
import shlex
import stat
from dataclasses import replace

import pytest

from bcmetal.join.ca import make_root, pem_of, pin_of
from bcmetal_agent.cli import _parser
from cli.join_door import Door
from join.site import a_box


def listed(door: Door, *more: str) -> list[dict[str, object]]:
    found = door.run("token", "list", "--json", *more).doc["tokens"]
    assert isinstance(found, list)
    return found


# ---------------------------------------------------------------- token create


def test_the_bearer_alone_goes_to_the_standard_output_and_admits_a_machine(door: Door) -> None:
    made = door.run("token", "create", "--ttl", "2h", "--uses", "3")
    assert made.code == 0, made.err
    bearer = made.out.strip()
    assert bearer.startswith("bcjt_jt_")
    assert "shown once" in made.err
    assert bearer not in made.err
    assert door.site.join(bearer, a_box()).status == 200
    (record,) = listed(door)
    assert (record["maxUses"], record["uses"]) == (3, 1)
    assert bearer not in json.dumps(record)


def test_the_join_line_is_one_that_the_agent_takes(door: Door) -> None:
    made = door.run("token", "create", "--out", str(door.folder / "r 1.token"))
    line = next(one for one in made.err.splitlines() if one.startswith("join line: "))
    words = shlex.split(line.removeprefix("join line: "))
    assert words[0] == "bcmetal-agent"
    options = _parser().parse_args(words[1:])
    assert f"{options.server.host}:{options.server.port}" == "127.0.0.1:8445"
    assert f"{options.node_server.host}:{options.node_server.port}" == "127.0.0.1:8444"
    assert str(options.ca) == door.pin
    assert (door.folder / "r 1.token").read_text().strip().startswith("bcjt_")
    assert options.token_file == str(door.folder / "r 1.token")


def test_the_join_line_takes_the_addresses_that_the_site_or_the_person_names(door: Door) -> None:
    assert "machines cannot reach this host by that name" in door.run("token", "create").err
    door.site.change(lambda doc: doc["networks"]["bmc"].update(agent_url="https://10.30.0.5:8445"))
    assert "--server https://10.30.0.5:8445 --node-server https://10.30.0.5:8444" in door.run("token", "create").err
    assert "cannot reach" not in door.run("token", "create").err
    named = door.run("token", "create", "--server", "https://boot.example:9445", "--node-server", "https://n.example:1")
    assert "--server https://boot.example:9445 --node-server https://n.example:1" in named.err
    half = door.run("token", "create", "--server", "https://boot.example:9445")
    assert "--server https://boot.example:9445 --node-server https://boot.example:8444" in half.err


def test_without_an_authority_the_token_is_minted_and_the_missing_step_is_said(door: Door) -> None:
    door.site.with_ca = False
    made = door.run("token", "create")
    assert made.code == 0
    assert made.out.startswith("bcjt_")
    assert "bcmetal ca init" in made.err
    assert "--token-file" not in made.err
    assert door.run("token", "create", "--json").doc["joinLine"] is None


def test_while_the_root_changes_the_pin_is_of_the_one_that_counts_now(door: Door) -> None:
    current, newer = door.pin, make_root("next", door.site.now()).certificate
    door.site.authority = replace(door.site.authority, roots=(pem_of([newer]), *door.site.authority.roots))
    told = door.run("token", "create").err
    assert f"--ca {current}" in told
    assert f"the root is being changed: this pin is good until it is; the other root is {pin_of(newer)}" in told


def test_a_file_for_the_bearer_is_private_and_never_written_over(door: Door) -> None:
    out = door.folder / "one.token"
    made = door.run("token", "create", "--out", str(out))
    assert (made.code, made.out) == (0, "")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    before = out.read_text()
    assert before not in made.err
    refused = door.run("token", "create", "--out", str(out))
    assert refused.code == 2
    assert out.read_text() == before
    assert len(listed(door)) == 1, "nothing is minted that nobody could keep"
    under_json = door.run("token", "create", "--json", "--out", str(door.folder / "two.token")).doc
    assert "token" not in under_json
    assert under_json["tokenFile"] == str(door.folder / "two.token")


def test_a_refused_create_leaves_no_file(door: Door) -> None:
    out = door.folder / "one.token"
    refused = door.run("token", "create", "--out", str(out), who="reader")
    assert refused.code == 4
    assert "PERMISSION_DENIED" in refused.err
    assert not out.exists()


def test_the_same_key_mints_once_and_shows_no_second_bearer(door: Door) -> None:
    key = secrets.token_hex(6)
    assert door.run("token", "create", "--key", key).out.startswith("bcjt_")
    again = door.run("token", "create", "--key", key)
    assert (again.code, again.out) == (0, "")
    assert "not shown again" in again.err
    other = door.run("token", "create", "--key", key, "--expect-serial", "SN1X")
    assert other.code == 1
    assert "CONFLICT" in other.err


def test_what_is_expected_is_sent_and_every_fault_of_it_is_said(door: Door) -> None:
    box = a_box()
    words = ["--expect-uuid", str(box.uuid), "--expect-serial", str(box.serial), "--expect-mac", box.macs[0]]
    made = door.run("token", "create", *words, "--allow-reclaim", "--json").doc
    assert made["expect"] == {"productUuid": box.uuid, "serial": box.serial, "mac": box.macs[0]}
    assert made["allowReclaim"] is True
    assert door.site.join(made["token"], a_box(2)).status == 403
    assert door.site.join(made["token"], box).status == 200
    wrong = door.run("token", "create", "--expect-uuid", "zz", "--expect-mac", "zz", "--ttl", "2d")
    assert wrong.code == 2
    for field in ("expect.productUuid", "expect.mac", "ttlSeconds"):
        assert f"  {field}: " in wrong.err
    assert door.run("token", "create", "--expect-serial", "Unknown").code == 2


def test_a_hosted_token_needs_what_the_pool_says(door: Door) -> None:
    assert door.run("token", "create", "--hosted", "kubernetes", "--json").doc["hosted"] == "kubernetes"


def test_a_pool_without_an_agent_is_refused_in_words(door: Door) -> None:
    refused = door.run("token", "create", pool="bare")
    assert refused.code == 1
    assert "INVALID_STATE" in refused.err


# ---------------------------------------------------------------- token create --from


def a_list(door: Door, *lines: str) -> str:
    path = door.folder / f"expected-{secrets.token_hex(4)}.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_list_mints_a_pinned_token_for_each_row(door: Door) -> None:
    one, two = a_box(1), a_box(2)
    path = a_list(door, "serial,productUuid", f"{one.serial},{one.uuid}", f"{two.serial},")
    out = door.folder / "tokens.csv"
    made = door.run("token", "create", "--from", path, "--out", str(out))
    assert made.code == 0, made.err
    assert made.out == ""
    assert "2 of 2 minted" in made.err
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    head, *rows = [line.split(",") for line in out.read_text().splitlines()]
    assert head == ["serial", "productUuid", "tokenId", "expiresAt", "token"]
    assert [row[:2] for row in rows] == [[one.serial, one.uuid], [two.serial, ""]]
    assert door.site.join(rows[0][4], two).status == 403
    assert door.site.join(rows[0][4], one).status == 200
    assert door.site.join(rows[1][4], two).status == 200


def test_the_same_list_mints_nothing_twice_in_whatever_order_and_case(door: Door) -> None:
    one, two = a_box(1), a_box(2)
    first = door.run(
        "token", "create", "--from", a_list(door, "mac,serial", f"{one.macs[0]},{one.serial}", f"{two.macs[0]},")
    )
    assert first.out.count("bcjt_") == 2
    again = a_list(door, "serial,mac", f",{two.macs[0].upper()}", f"{str(one.serial).lower()},{one.macs[0].upper()}")
    repeated = door.run("token", "create", "--from", again, "--out", str(door.folder / "again.csv"))
    assert (repeated.code, repeated.out) == (0, "")
    assert "0 of 2 minted" in repeated.err
    assert not (door.folder / "again.csv").exists()
    assert len(listed(door)) == 2
    assert door.run("token", "create", "--from", again, "--key", "second").out.count("bcjt_") == 2
    assert len(listed(door)) == 4


def test_every_bad_row_is_named_by_its_line_and_nothing_is_minted(door: Door) -> None:
    lines = [
        "serial,mac",
        "SN1X,3c:ec:ef:10:00:01",
        ",",
        "SN2X,zz",
        "SN3X",
        "Unknown,",
        '"a b",02',
        "sn1x,3C:EC:EF:10:00:01",
    ]
    refused = door.run("token", "create", "--from", a_list(door, *lines))
    assert refused.code == 2
    for text in (
        "line 3: names no identifier",
        "line 4: mac: 'zz' is not of its form",
        "line 5: has 1 cells, and the header 2",
        "line 6: serial: 'Unknown' is a placeholder",
        "line 7: serial: 'a b' is not of its form",
        "line 7: mac: '02' is not of its form",
        "line 8: is the same machine as line 2",
    ):
        assert text in refused.err
    assert "line 2:" not in refused.err
    assert door.paths == [one for one in door.paths if "create" not in one]
    assert listed(door, "--all") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be a header"),
        ("serial,host\nSN1X,a\n", "'host' is no column"),
        ("serial,serial\nSN1X,SN1X\n", "stands there twice"),
        ("serial\n", "names no machine"),
        ('serial\n"SN1X\n', "is no CSV"),
        ("SN1X\nSN2X\n", "'SN1X' is no column"),
    ],
)
def test_a_list_that_is_none_is_refused(door: Door, text: str, said: str) -> None:
    path = door.folder / "bad.csv"
    path.write_text(text)
    refused = door.run("token", "create", "--from", str(path), "--json")
    assert refused.code == 2
    assert said in refused.doc["error"]["message"]


def test_a_list_comes_from_the_standard_input_and_with_a_byte_order_mark(door: Door) -> None:
    made = door.run("token", "create", "--from", "-", stdin="\ufeffserial\r\nSN1X\r\n\r\nSN2X\r\n")
    assert made.code == 0, made.err
    assert made.out.count("bcjt_") == 2


def test_a_failure_half_way_loses_no_token_and_the_same_command_goes_on(door: Door) -> None:
    path = a_list(door, "serial", "SN1X", "SN2X", "SN3X")
    door.cut_after[0] = 3  # the trust bundle, and two tokens
    broken = door.run("token", "create", "--from", path, "--out", str(door.folder / "1.csv"))
    assert broken.code == 3
    assert "line 4: no daemon" in broken.err
    assert (door.folder / "1.csv").read_text().count("bcjt_") == 2
    door.cut_after[0] = None
    rest = door.run("token", "create", "--from", path, "--json").doc
    assert rest["minted"] == 1
    assert ["token" in one for one in rest["tokens"]] == [False, False, True]


def test_no_cell_that_is_written_is_a_formula(door: Door) -> None:
    made = door.run("token", "create", "--from", a_list(door, "serial", "-1+2", "+SN1X"))
    assert [line.split(",")[0] for line in made.out.splitlines()] == ["serial", "'-1+2", "'+SN1X"]


# ---------------------------------------------------------------- token list, revoke


def test_tokens_are_listed_with_their_state_and_revoked_by_id(door: Door) -> None:
    bearer = door.site.token(expect={"serial": "SN1X"})
    token_id = bearer.removeprefix("bcjt_").partition(".")[0]
    shown = door.run("token", "list").out
    for part in (token_id, "live", "0 of 1", "serial=SN1X", "key:owner"):
        assert part in shown
    revoked = door.run("token", "revoke", token_id)
    assert revoked.code == 0, revoked.err
    assert door.site.join(bearer, a_box()).status == 401
    assert door.run("token", "list").out == ""
    assert "revoked" in door.run("token", "list", "--all").out


def test_a_page_leads_to_the_next(door: Door) -> None:
    for _ in range(3):
        door.site.token()
    first = door.run("token", "list", "--limit", "2", "--json").doc
    rest = door.run("token", "list", "--cursor", first["cursor"], "--json").doc
    assert (len(first["tokens"]), len(rest["tokens"])) == (2, 1)
    assert f"more: --cursor {first['cursor']}" in door.run("token", "list", "--limit", "2").err


def test_a_bearer_given_as_an_id_is_refused_and_not_sent(door: Door) -> None:
    bearer = door.site.token()
    refused = door.run("token", "revoke", bearer)
    assert refused.code == 2
    assert bearer not in refused.err
    assert door.paths == []
