"""The server for recorded trees: what it reads, how it matches paths, and which writes act."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bcmetal_drivers.emulated.recorded import NoRecording, RecordedTree
from bcmetal_drivers.errors import DriverError
from bcmetal_drivers.resources import PowerAction, PowerState
from recorded.bench import driven

SYSTEM = "/redfish/v1/Systems/Self"
DOCS: dict[str, Any] = {
    "/redfish/v1": {
        "RedfishVersion": "1.11.0",
        "Systems": {"@odata.id": "/redfish/v1/Systems"},
        "SessionService": {"@odata.id": "/redfish/v1/SessionService"},
        "Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions/"}},
    },
    "/redfish/v1/Systems": {"Members": [{"@odata.id": "/redfish/v1/systems/self/"}], "Members@odata.count": 1},
    SYSTEM: {
        "@odata.id": SYSTEM,
        "Id": "Self",
        "PowerState": "Off",
        "Boot": {"BootSourceOverrideTarget": "None"},
        "Actions": {
            "#ComputerSystem.Reset": {
                "target": f"{SYSTEM}/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "ForceRestart"],
            }
        },
    },
}


def written(folder: Path, inner: str = "a-machine/redfish/v1") -> Path:
    for path, doc in DOCS.items():
        place = folder / inner / path.removeprefix("/redfish/v1").strip("/")
        place.mkdir(parents=True, exist_ok=True)
        (place / "index.json").write_text(json.dumps(doc))
    return folder


@pytest.mark.parametrize("inner", ["redfish/v1", "a-machine/redfish/v1", "public-rackmount"])
def test_a_tree_is_read_from_a_folder_or_an_archive_in_the_long_form_and_the_short(tmp_path: Path, inner: str) -> None:
    folder = written(tmp_path / "tree", inner)
    with tarfile.open(tmp_path / "tree.tar.xz", "w:xz") as archive:
        archive.add(folder, "tree")
    for where in (folder, tmp_path / "tree.tar.xz"):
        tree = RecordedTree.read(where)
        assert tree.document("/redfish/v1/SYSTEMS/self/") == DOCS[SYSTEM]
        assert len(list(tree)) == len(DOCS)


@pytest.mark.parametrize("content", [None, b"no archive"])
def test_what_holds_no_service_root_is_no_recording(tmp_path: Path, content: bytes | None) -> None:
    where = tmp_path / "empty"
    if content is None:
        where.mkdir()
    else:
        where.write_bytes(content)
    with pytest.raises(NoRecording):
        RecordedTree.read(where)


def test_a_reset_changes_the_power_and_what_is_not_acted_out_is_refused(tmp_path: Path) -> None:
    with driven(RecordedTree(DOCS), tmp_path) as (bmc, served):
        assert bmc.power_state() is PowerState.OFF
        bmc.set_power(PowerAction.ON)
        assert bmc.power_state() is PowerState.ON
        with pytest.raises(DriverError):
            bmc.set_power(PowerAction.NMI)
        assert served.writes == [("POST", f"{SYSTEM}/Actions/ComputerSystem.Reset".lower())]
        assert served.sessions() == 1
    assert served.sessions() == 0


def test_what_is_written_over_a_tree_leaves_the_recording_as_it_was() -> None:
    tree = RecordedTree(DOCS)
    tree.write(SYSTEM, {"Boot": {"BootSourceOverrideTarget": "Pxe"}, "AssetTag": None})
    tree.write(SYSTEM.lower(), {"Boot": {"BootSourceOverrideEnabled": "Once"}})
    doc = tree.document(SYSTEM)
    assert doc["Boot"] == {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}
    assert doc["AssetTag"] is None
    assert doc["Id"] == "Self"
    assert tree.copy().document(SYSTEM) == DOCS[SYSTEM]


def test_a_tree_is_served_by_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bcmetal_drivers.emulated", "--tree", str(written(tmp_path / "tree"))]
    with subprocess.Popen([*command, "--state", str(tmp_path / "state")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())["bmcs"]
        assert told[0]["address"].startswith("redfish://127.")
        assert Path(told[0]["password_file"]).stat().st_mode & 0o777 == 0o600
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
