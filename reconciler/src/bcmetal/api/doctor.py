"""Looking at a BMC before it is enrolled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from bcmetal import models
from bcmetal.answers_diagnosis import Diagnosis
from bcmetal.api.calls import Call, method
from bcmetal.api.places import PIN_FIRST, Place, place_of, reference_faults, refuse
from bcmetal.diagnosis import Seen, shown
from bcmetal.doctor import Doctor, Visit
from bcmetal.errors import Fault, Internal, InvalidState
from bcmetal.settings_grants import Action
from bcmetal.store import audit
from bcmetal.store.values import Json
from bcmetal_drivers.connection import Trust, TrustKind
from bcmetal_drivers.schemes import IPMI, family_of

NO_DOCTOR: Final = "no-doctor-here"
NOT_FOR_HERE: Final = "credential-not-for-here"


@method("metal", models.Doctor, Diagnosis, Action.ENROLL)
async def doctor(call: Call[models.Doctor]) -> Json:
    """Look at a BMC that is to be enrolled: which services answer there, its certificate, what is known of its maker's BMCs.

    Only addresses within the BMCs' networks, as for `enroll`. With `bmc.credentialRef` one login in observe mode, within the budget of failed
    logins; the credential goes only where `enroll` would send it. A BMC that is not there is an answer, and no error.
    """
    there = call.services.doctor
    asked = call.input.bmc
    place, faults = place_of(call.settings, asked.address, tls=asked.tls)
    name = asked.credential_ref
    if place is not None and name is not None:
        faults += _credential_faults(call, name, place)
    refuse(faults)
    if place is None:
        raise Internal("no place and no fault")
    if there is None:
        raise InvalidState("this daemon looks at no BMCs before they are enrolled", reason=NO_DOCTOR)
    call.services.doctor_pace.take(call.who.name, call.now)
    there.begin()
    try:
        given = {"bmc": str(place.address), **({"credentialRef": name} if name else {})}
        entry = call.audit(f"compute-pool/{call.its_pool.name}", "allowed", doc={"input": given})
        await call.store.write(audit.add, entry, call.now)
        return await _examined(call, there, place, name)
    finally:
        there.end()


def _credential_faults(call: Call[models.Doctor], name: str, place: Place) -> list[Fault]:
    found = call.settings.credentials.get(name)
    if found is not None and found.of_one_machine:
        return [Fault("bmc.credentialRef", "is a list of labels, which are for an enrolment")]
    return list(reference_faults(call.settings, name, place))


async def _examined(call: Call[models.Doctor], there: Doctor, place: Place, name: str | None) -> Json:
    of_ipmi = family_of(place.address.scheme) == IPMI  # whose trust says nothing of the Redfish beside it
    unsaid = of_ipmi or place.trust_kind == PIN_FIRST
    trust = None if unsaid else Trust(TrustKind(place.trust_kind), place.trust_value)
    visit = Visit(place.address, place.network, trust)
    seen = await there.look(visit)
    found: dict[str, Any] = {"network": place.network.name, **shown(seen), "login": None}
    if name is None or not seen.there:
        return found
    faults = _credential_faults(call, name, _as_seen(call, place, seen))
    if faults:
        why = "; ".join(f"{fault.path}: {fault.message}" for fault in faults)
        return found | {"login": {"credential": name, "ok": False, "trouble": {"code": NOT_FOR_HERE, "message": why}}}
    return found | {"login": await there.log_in(visit, seen, name, call.its_pool)}


def _as_seen(call: Call[models.Doctor], place: Place, seen: Seen) -> Place:
    """Of a bare address it is known now what speaks there. One with a scheme says itself what is spoken."""
    if place.address.scheme:
        return place
    if not seen.redfish.there:
        of_ipmi, _ = place_of(call.settings, call.input.bmc.address, IPMI)
        return of_ipmi or place
    return replace(place, address=replace(place.address, scheme=seen.redfish.address.scheme))
