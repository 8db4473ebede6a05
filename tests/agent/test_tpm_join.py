"""Joining by a TPM, a real software one: the daemon's own side makes and judges the challenge."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_machine import Machine
from bcmetal.join import tpm
from bcmetal_agent import wire
from bcmetal_agent.join import Denied, Waiting
from bcmetal_agent.tpm import NoTpm, TpmError
from fake_control_plane import Answer, Call, ControlPlane, csr_der, refuse
from join.swtpm import a_software_tpm


@pytest.fixture(scope="module")
def tcti(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with a_software_tpm(tmp_path_factory.mktemp("tpm")) as found:
        yield found.tcti


class Challenger:
    """Challenges each join, and admits it with the proof."""

    def __init__(self) -> None:
        self.secrets: dict[str, bytes] = {}

    def __call__(self, plane: ControlPlane, call: Call) -> Answer:
        message = wire.decode(wire.Join, call.body)
        assert message.tpm is not None
        claim = tpm.read_claim(message.tpm.ek_public, message.tpm.ak_public, message.tpm.ek_certificate)
        assert claim.ek_certificate is not None
        if message.challenge is None:
            name, secret = f"jc_{len(self.secrets)}", secrets.token_bytes(tpm.SECRET_BYTES)
            made = tpm.make_credential(claim.ek, claim.ak.name, secret)
            self.secrets[name] = secret
            blob, encrypted = (base64.b64encode(one).decode() for one in (made.id_object, made.encrypted_secret))
            return Answer(200, wire.encode(wire.Challenge(name, blob, encrypted, 60)))
        secret = self.secrets.pop(message.challenge.challenge_id)
        given = base64.b64decode(message.challenge.proof)
        if given != tpm.proof(secret, message.challenge.challenge_id, csr_der(message.csr)):
            return refuse(403, "PERMISSION_DENIED", "no")(plane, call)
        return plane.admit(call)


def test_a_machine_joins_by_its_tpm(plane: ControlPlane, tmp_path: Path, tcti: str) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [Challenger()] * 2
    machine.join(attestor="tpm", tcti=tcti)
    assert len(plane.admitted) == 1
    first, second = (wire.decode(wire.Join, call.body) for call in plane.calls if call.path == wire.JOIN_PATH)
    assert first.challenge is None
    assert second.challenge is not None
    assert (first.csr, first.tpm, first.identifiers) == (second.csr, second.tpm, second.identifiers)


def test_a_retry_shows_the_same_keys_of_the_tpm(plane: ControlPlane, tmp_path: Path, tcti: str) -> None:
    """The attestation key was saved: another process loads it again."""
    machine = Machine(plane, tmp_path)
    challenger = Challenger()

    def lose_the_proof(plane: ControlPlane, call: Call) -> Answer:
        answer = challenger(plane, call)
        return Answer(answer.status, answer.body, drop=True)

    plane.next_joins = [challenger, lose_the_proof, challenger, challenger]
    with machine.state.locked():
        assert isinstance(machine.agent(attestor="tpm", tcti=tcti).join(once=True), Waiting)
    machine.join(attestor="tpm", tcti=tcti)
    claims = {json.dumps(json.loads(call.body)["tpm"]) for call in plane.calls if call.path == wire.JOIN_PATH}
    assert len(claims) == 1
    assert len(plane.admitted) == 1


def test_a_challenge_for_another_key_is_not_answered(plane: ControlPlane, tmp_path: Path, tcti: str) -> None:
    machine = Machine(plane, tmp_path)

    def for_another_name(plane: ControlPlane, call: Call) -> Answer:
        message = wire.decode(wire.Join, call.body)
        assert message.tpm is not None
        claim = tpm.read_claim(message.tpm.ek_public, message.tpm.ak_public, None)
        made = tpm.make_credential(claim.ek, claim.ek.name, secrets.token_bytes(tpm.SECRET_BYTES))
        blob, encrypted = (base64.b64encode(one).decode() for one in (made.id_object, made.encrypted_secret))
        return Answer(200, wire.encode(wire.Challenge("jc_1", blob, encrypted, 60)))

    plane.next_joins = [for_another_name]
    with machine.state.locked(), pytest.raises(TpmError):
        machine.agent(attestor="tpm", tcti=tcti).join()
    assert machine.state.current() is None


@pytest.mark.parametrize("junk", ["!", "", base64.b64encode(b"junk").decode()])
def test_a_challenge_of_junk_is_told_as_such(plane: ControlPlane, tmp_path: Path, tcti: str, junk: str) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [lambda plane, call: Answer(200, wire.encode(wire.Challenge("jc_1", junk, junk, 60)))]
    with machine.state.locked(), pytest.raises(TpmError):
        machine.agent(attestor="tpm", tcti=tcti).join()


def test_a_machine_without_a_tpm_says_so_and_calls_nobody(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    with machine.state.locked(), pytest.raises(NoTpm):
        machine.agent(attestor="tpm", tcti="device:/dev/null/none").join()
    assert plane.calls == []


def test_a_wrong_proof_is_refused_by_the_daemons_own_check(plane: ControlPlane, tmp_path: Path, tcti: str) -> None:
    machine = Machine(plane, tmp_path)
    challenger = Challenger()

    def forget(plane: ControlPlane, call: Call) -> Answer:
        for name in challenger.secrets:
            challenger.secrets[name] = secrets.token_bytes(tpm.SECRET_BYTES)
        return challenger(plane, call)

    plane.next_joins = [challenger, forget]
    with machine.state.locked(), pytest.raises(Denied):
        machine.agent(attestor="tpm", tcti=tcti).join()
