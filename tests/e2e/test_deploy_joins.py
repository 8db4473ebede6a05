"""A deploy that ends with the machine's own agent joining its pool, and a release that puts it out: daemon, rack and agent are real."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from bcmetal.demo.site import JOIN_POOL, TENANT, Site, emulated_site
from bcmetal.join.ca import pin_of
from cli.running import Ran, invoke

pytestmark = pytest.mark.slow

WITHIN_S: Final = 90.0
LISTENERS: Final = re.compile(r"machines join at (https://\S+), nodes renew at (https://\S+)")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with emulated_site(tmp_path / "site", redfish=1, ipmi=0) as running:
        yield running


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "site").mkdir()
    return tmp_path


def run(site: Site, *words: str, stdin: str | None = None) -> Ran:
    return invoke("--profile", str(site.profile_file), "--pool", JOIN_POOL, *words, stdin=stdin)


def view_of(site: Site) -> dict[str, Any]:
    found = run(site, "node", "show", "one", "--json").doc["results"][0]
    assert isinstance(found, dict)
    return found


def until(site: Site, what: str, fits: Any) -> dict[str, Any]:
    deadline = time.monotonic() + WITHIN_S
    while True:
        view = view_of(site)
        if fits(view):
            return view
        assert time.monotonic() < deadline, (what, view["state"], view["operation"], view["lastError"])
        time.sleep(0.2)


def agent_words(site: Site, tree: Path, state: Path) -> list[str]:
    found = LISTENERS.search(site.daemon.log.read_text(encoding="utf-8"))
    assert found is not None
    root = x509.load_pem_x509_certificate((site.folder / "root.pem").read_bytes())
    words = [sys.executable, "-m", "bcmetal_agent", "join", "--server", found[1], "--node-server", found[2]]
    words += ["--ca", pin_of(root), "--attestor", "discovery", "--tenant", TENANT, "--pool", JOIN_POOL]
    return [*words, "--root", str(tree), "--state-dir", str(state), "--once", "--json"]


def machine_tree(folder: Path, view: dict[str, Any]) -> Path:
    """What the kernel of the machine behind that BMC would show."""
    dmi = folder / "tree/sys/class/dmi/id"
    dmi.mkdir(parents=True)
    (dmi / "product_uuid").write_text(f"{view['identity']['productUuid']}\n")
    (dmi / "product_serial").write_text(f"{view['identity']['serial']}\n")
    (folder / "tree/sys/class/net").mkdir(parents=True)
    return folder / "tree"


def test_a_deploy_waits_for_its_agent_and_a_release_puts_it_out(site: Site, folder: Path) -> None:
    bmc = site.redfish[0]
    words = ["node", "enroll", bmc.address, "--name", "one", "--username", bmc.username, "--password-file", "-"]
    enrolled = run(
        site, *words, "--fingerprint", bmc.fingerprint, "--wait", stdin=bmc.password.get_secret_value() + "\n"
    )
    assert enrolled.code == 0, enrolled.err
    assert run(site, "commission", "one", "--wait", "--timeout", "90s").code == 0
    tree = machine_tree(folder, view_of(site))
    command = agent_words(site, tree, folder / "state")
    early = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert early.returncode == 3, (early.stdout, early.stderr)  # its identifiers are public facts: nobody awaits it yet

    assert run(site, "deploy", "one", "--image", "demo").code == 0
    until(site, "the wait for its agent", lambda view: (view["operation"] or {}).get("step") == "wait_for_the_join")
    joined = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert joined.returncode == 0, (joined.stdout, joined.stderr, site.daemon.last_words())
    view = until(site, "deployed", lambda view: view["state"] == "deployed")
    assert json.loads(joined.stdout)["nodeId"] == view["nodeId"]
    # What a machine says of itself without a token never earns platform trust.
    assert (view["agent"]["joined"], view["agent"]["trust"]) == (True, "tenant-controlled")

    release = threading.Thread(target=run, args=(site, "release", "one", "--wait", "--timeout", "90s"))
    release.start()
    until(site, "the end of its membership", lambda view: not view["agent"]["joined"])
    release.join()
    assert view_of(site)["state"] == "available"
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert view_of(site)["agent"]["joined"] is False, again.stdout
