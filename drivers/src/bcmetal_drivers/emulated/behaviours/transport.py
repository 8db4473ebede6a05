"""Lines, certificates, answers that are late, broken or enormous, and services with more than one system."""

from __future__ import annotations

from typing import Any, Final

from bcmetal_drivers.emulated.behaviours.profile import Behaviour
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.replies import Reply

SYSTEM: Final = r"/redfish/v1/Systems/[^/]+"
A_SYSTEM: Final = SYSTEM + "$"


def _witness(path: str, **more: Any) -> dict[str, Any]:
    return {
        "@odata.id": path,
        "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
        "Id": path.rpartition("/")[2],
        "Name": path.rpartition("/")[2],
        **more,
    }


def _listed(*paths: str) -> dict[str, Any]:
    return {"Members": [{"@odata.id": path} for path in paths], "Members@odata.count": len(paths)}


BEHAVIOURS: Final = (
    Behaviour(
        name="keep-alive-dropped",
        about="The line is closed after every answer, which does not announce it.",
        rules=(Rule(action="hang_up"),),
    ),
    Behaviour(
        name="reset-on-second-request",
        about="The second request on a kept-alive line is met with a TCP reset.",
        rules=(Rule(action="cut"),),
    ),
    Behaviour(
        name="reset-answers-lost",
        about="Resets are carried out and their answers lost.",
        rules=(Rule(action="drop_after", method="POST", path="Reset$", every=2),),
    ),
    Behaviour(
        name="silent",
        about="Connections are taken and nothing is answered, twice.",
        rules=(Rule(action="delay", seconds=60.0, path=A_SYSTEM, method="GET", times=2),),
    ),
    Behaviour(
        name="a-byte-a-second",
        about="An answer comes a byte a second, twice.",
        rules=(Rule(action="drip", seconds=1.0, path=A_SYSTEM, method="GET", times=2),),
    ),
    Behaviour(
        name="gateway-timeout-html",
        about="Every thirteenth read is answered 504 with a page of HTML.",
        rules=(Rule(action="html", status=504, method="GET", every=13),),
    ),
    Behaviour(
        name="not-ready-400",
        about="The first ten requests are answered 400: the service is not ready.",
        rules=(
            Rule(
                after=1, times=10,
                answer=Reply(status=400, code="Base.1.8.ServiceInUnknownState", message="Redfish is not ready, try again later."),
            ),
        ),
    ),
    Behaviour(
        name="restarts-in-the-middle",
        about="The BMC restarts by itself: gone for a minute, then 5xx and good answers by turns.",
        rules=(
            Rule(method="GET", path=A_SYSTEM, after=6, times=1, before={"restart": {"seconds": 60.0, "flaps": 4}}),
            Rule(action="refuse", status=500, method="GET", after=12, times=4, code="InternalError"),
        ),
    ),
    Behaviour(
        name="ipv6-literal",
        about="The BMC is reached by an IPv6 address.",
        setup={"host": "::1"},
    ),
    Behaviour(
        name="certificate-expired",
        about="The certificate expired yesterday.",
        setup={"certificate": "expired"},
    ),
    Behaviour(
        name="certificate-for-another-name",
        about="The certificate is for another address than the one that is dialled.",
        setup={"certificate": "other-name"},
    ),
    Behaviour(
        name="old-tls",
        about="The BMC speaks no newer TLS than 1.1.",
        setup={"certificate": "old-tls"},
    ),
    Behaviour(
        name="several-systems",
        about="Two blades are behind one BMC.",
        setup={"systems": 2},
    ),
    Behaviour(
        name="witness-node",
        about="Beside the machine the service lists a system that can do nothing: no reset, no boot.",
        overlay={
            "/redfish/v1/Systems": _listed("/redfish/v1/Systems/witness", "/redfish/v1/Systems/<system>"),
            "/redfish/v1/Systems/witness": _witness("/redfish/v1/Systems/witness", SystemType="Virtual", PowerState="On"),
        },
    ),
    Behaviour(
        name="hgx-beside-the-host",
        about="A baseboard of GPUs (HGX) is listed as a system before the host.",
        overlay={
            "/redfish/v1/Systems": _listed("/redfish/v1/Systems/HGX_Baseboard_0", "/redfish/v1/Systems/<system>"),
            "/redfish/v1/Systems/HGX_Baseboard_0": _witness(
                "/redfish/v1/Systems/HGX_Baseboard_0",
                SystemType="Physical", Manufacturer="NVIDIA", Model="HGX H100 8 GPU", PowerState="On",
                UUID="00000000-0000-0000-0000-000000000001", Processors={"@odata.id": "/redfish/v1/Systems/HGX_Baseboard_0/Processors"},
            ),
        },
    ),
    Behaviour(
        name="members-change-their-order",
        about="Collections list their members in another order each time.",
        quirks={"shuffles_members": True},
    ),
    Behaviour(
        name="enormous-documents",
        about="Every firmware entry is of nine megabytes.",
        quirks={"padding_bytes": 9 * 1024 * 1024},
    ),
    Behaviour(
        name="links-in-a-circle",
        about="A collection's last page links to its first.",
        overlay={
            f"{SYSTEM}/Memory": {"Members@odata.nextLink": "/redfish/v1/Systems/<system>/Memory"},
            "/redfish/v1/UpdateService/FirmwareInventory": {
                "Members@odata.nextLink": "/redfish/v1/UpdateService/FirmwareInventory"
            },
        },
    ),
    Behaviour(
        name="nan-in-documents",
        about="Numbers are NaN where there is no reading.",
        overlay={
            SYSTEM: {"MemorySummary": {"TotalSystemMemoryGiB": float("nan")}},
            f"{SYSTEM}/Memory/[^/]+": {"OperatingSpeedMhz": float("nan")},
        },
    ),
    Behaviour(
        name="control-characters",
        about="Names hold control characters and escape sequences.",
        overlay={
            SYSTEM: {"Model": "R740\u001b[31mxd\u0000\r\n", "AssetTag": "\u0007rack\t1", "HostName": "a\u202eb"},
            f"{SYSTEM}/Processors/[^/]+": {"Model": "Xeon\u0000\u001b]0;owned\u0007"},
        },
    ),
)  # fmt: skip
