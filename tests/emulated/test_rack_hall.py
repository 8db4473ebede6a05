"""Many BMCs served by one pool of threads: each keeps its address, its certificate, its sessions and its faults."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bcmetal_drivers.emulated.__main__ import main
from bcmetal_drivers.emulated.rack import Rack, Rule
from bcmetal_drivers.resources import PowerState
from rack_client import dialling

MANY = 60


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    rack = Rack(shared=True)
    for n in range(MANY):
        rack.add_redfish(f"b{n}", behaviours=("supermicro",))
    with rack:
        yield rack


def test_each_bmc_answers_for_itself_under_its_own_certificate(rack: Rack) -> None:
    shown = set()
    for bmc in rack.bmcs.values():
        with dialling(bmc) as client:  # trusts this BMC's certificate alone
            shown.add(client.get().doc["SerialNumber"])
    assert shown == {bmc.machine.serial for bmc in rack.bmcs.values()}


def test_they_share_their_threads(rack: Rack) -> None:
    assert threading.active_count() < MANY


def test_a_write_reaches_the_machine_that_was_dialled(rack: Rack) -> None:
    with dialling(rack.bmc("b1")) as one, dialling(rack.bmc("b2")) as two:
        assert one.login().status == 201
        assert two.get().status == 200
        assert one.reset("On").status == 204
    assert (rack.bmc("b1").machine.power, rack.bmc("b2").machine.power) == (PowerState.ON, PowerState.OFF)
    assert (rack.sessions("b1"), rack.sessions("b2")) == (1, 0)


def test_a_fault_of_one_is_no_fault_of_another(rack: Rack) -> None:
    rule = rack.bmc("b3").rule(Rule(action="drop_before"))
    with dialling(rack.bmc("b3")) as broken, dialling(rack.bmc("b4")) as good:
        with pytest.raises(ConnectionError):
            broken.get()
        assert good.get().status == 200
    assert rack.fired(rule) == 1


def test_a_rack_that_starts_again_is_where_it_was(rack: Rack) -> None:
    before = [bmc.address for bmc in rack.bmcs.values()]
    rack.stop()
    with dialling(rack.bmc("b5")) as client, pytest.raises(ConnectionError):
        client.get()
    rack.start()
    assert [bmc.address for bmc in rack.bmcs.values()] == before
    with dialling(rack.bmc("b5")) as client:
        assert client.get().status == 200


def test_plain_http_and_tls_are_in_one_hall() -> None:
    rack = Rack(shared=True)
    bmcs = [rack.add_redfish("plain", tls=False), rack.add_redfish("secure")]
    with rack:
        for bmc in bmcs:
            with dialling(bmc) as client:
                assert client.get().status == 200


def test_a_process_serves_many_with_behaviours_and_says_how_long_it_took() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "bcmetal_drivers.emulated", "--machines", "100", "--behaviours", "supermicro,flaky"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            where = json.loads(process.stdout.readline())
            told = process.stderr.readline()
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    assert len({bmc["host"] for bmc in where["bmcs"]}) == 100
    assert told.startswith("100 BMCs after ")
    assert not Path(where["control"]["token_file"]).parent.exists()  # nothing was asked to be kept
    (peak,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    assert peak < 300 * 1024


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--machines", "-1"], "argument --machines: -1 is no number of machines"),
        (["--control", "65536"], "argument --control: 65536 is no port"),
        (["--power-lag", "nan"], "argument --power-lag: nan is no number of seconds"),
        (["--behaviours", "flakey"], "no such behaviour: flakey; `--behaviours help` lists them"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_wrong_argument_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["emulated", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_rack_that_cannot_be_served_says_why_and_keeps_the_running_ones_state(tmp_path: Path) -> None:
    def second(*words: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "bcmetal_drivers.emulated", *words], capture_output=True, text=True, timeout=60
        )
        assert (ended.returncode, ended.stdout) == (1, "")
        return ended.stderr

    state = tmp_path / "rack"
    rack = Rack(state)
    rack.add_redfish("redfish-01")
    with rack:
        before = {path: path.read_bytes() for path in state.iterdir()}
        said = second("--state", str(state), "--redfish", "1", "--ipmi", "0")
        assert f"does another rack serve {state}? End it first" in said
        assert {path: path.read_bytes() for path in state.iterdir()} == before
    (tmp_path / "file").touch()
    assert "--state names a folder that you may write" in second("--state", str(tmp_path / "file"))
    assert "neither a folder nor a tar archive" in second("--tree", str(tmp_path / "file"))


def test_the_behaviours_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["emulated", "--behaviours", "help"])
    assert main() == 0
    assert "session-table-full " in capsys.readouterr().out
