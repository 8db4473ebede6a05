"""The two ways to work: join and be done, or join, renew and fetch secrets for as long as the machine runs."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bcmetal_agent import trust
from bcmetal_agent.bearer import NoToken
from bcmetal_agent.calls import RetryLater
from bcmetal_agent.client import CALL_S, Client, Refused
from bcmetal_agent.join import Denied, Joiner, NotConfigured, Waiting
from bcmetal_agent.notify import Notifier
from bcmetal_agent.pace import Clock, Pace
from bcmetal_agent.renew import Renewer
from bcmetal_agent.state import Identity, StateFolder, write_file
from bcmetal_agent.tpm import TpmError
from bcmetal_agent.trust import Endpoint, Untrusted

AFTER_REFUSAL_S: Final = 900.0  # a refused renewal may be somebody's mistake that is mended later
ALIVE_EVERY_S: Final = 240.0  # well within the ten minutes for which a node counts as running
ALIVE_JITTER: Final = 0.25
SECRET_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
log = logging.getLogger("bcmetal_agent")


@dataclass(frozen=True)
class SecretsPlan:
    """Which platform secrets to fetch, and the folder in which each gets a file of its name."""

    names: tuple[str, ...]
    folder: Path


@dataclass
class _Due:
    """When to renew. `admitted_s`: on the monotonic clock, where it was in this process.

    What was admitted just now goes by the server's clock and the time since, as this machine's clock may be off; it
    comes earlier where the wall clock says so (a machine that slept), but never so that renewals chase each other.
    """

    identity: Identity
    admitted_s: float | None
    not_before_s: float = 0.0

    def in_s(self, clock: Clock) -> float:
        now_s, left_s = clock.monotonic(), (self.identity.renew_at - clock.now()).total_seconds()
        if self.admitted_s is not None:
            since_s = now_s - self.admitted_s
            left_s = min(self.identity.renew_in_s - since_s, max(left_s, self.identity.life_s / 4 - since_s))
        return max(left_s, self.not_before_s - now_s)


@dataclass
class Agent:
    """`joiner` is None where the options say nothing of joining: then there must be an identity."""

    state: StateFolder
    joiner: Joiner | None
    clock: Clock
    random: Callable[[], float]
    notifier: Notifier = field(default_factory=Notifier)
    secrets: SecretsPlan | None = None
    call_s: float = CALL_S

    def join(self, *, once: bool = False, anew: bool = False) -> Identity | Waiting:
        """Until joined, or with `once` for one attempt; raises what Joiner.once raises. A machine that has joined stays as it is."""
        identity = None if anew else self.state.current()
        if identity is not None and self.state.attempt("join") is None:
            return identity
        if self.joiner is None:
            raise NotConfigured("--server, --node-server and --ca say whom to join")
        if anew:
            self.joiner.begin(anew=True)
        pace = Pace(self.random)
        while True:
            try:
                answer = self.joiner.once()
            except (Denied, Untrusted, NoToken, TpmError) as error:
                self.state.note(doing="not joined", last_error=str(error))
                raise
            if isinstance(answer, Identity):
                self._tell(f"joined as {answer.admission.node_id}", request_id="", last_error="")
                return answer
            self.state.note(doing="joining", last_error=answer.reason, request_id=answer.request_id)
            if once:
                return answer
            self._rest(answer, pace)

    def run(self) -> None:
        """For ever. Raises what `join` raises while there is no identity; later refusals are waited out."""
        self.notifier.ready()
        kept = self.state.current()
        identity = self._first()
        fresh = kept is None or kept.name != identity.name
        due = _Due(identity, self.clock.monotonic() if fresh else None)
        renewals, fetches = Pace(self.random), Pace(self.random)
        fetch_s: float | None = None if self.secrets is None else self.clock.monotonic()
        alive_s = self.clock.monotonic() + self._alive_after_s()
        while True:
            if self.clock.monotonic() >= alive_s:
                self._say_alive(due.identity)
                alive_s = self.clock.monotonic() + self._alive_after_s()
            if due.in_s(self.clock) <= 0:
                renewed, wait_s = self._renew(due.identity, renewals)
                due.not_before_s = self.clock.monotonic() + wait_s
                if renewed is not due.identity:
                    due = _Due(renewed, self.clock.monotonic())
                    fetch_s = None if self.secrets is None else self.clock.monotonic()
            if self.secrets is not None and fetch_s is not None and self.clock.monotonic() >= fetch_s:
                fetched, wait_s = self._fetch(due.identity, self.secrets, fetches)
                fetch_s = None if fetched else self.clock.monotonic() + wait_s
            waits = [
                due.in_s(self.clock),
                alive_s - self.clock.monotonic(),
                *([] if fetch_s is None else [fetch_s - self.clock.monotonic()]),
            ]
            self.notifier.sleep(self.clock, max(0.0, min(*waits, self.notifier.tick_s)))

    def _alive_after_s(self) -> float:
        return ALIVE_EVERY_S * (1 - ALIVE_JITTER * self.random())

    def _say_alive(self, identity: Identity) -> None:
        """What comes of it is only told: renewal and secrets have their own pace and their own refusals."""
        context = trust.verified(identity.trust(), key_file=identity.key_file, chain_file=identity.chain_file)
        node_server = self.joiner.plan.node_server if self.joiner else Endpoint.parse(identity.admission.node_server)
        try:
            answer = Client(node_server, context, self.call_s).alive()
        except Untrusted as error:
            answer = Refused(0, "", str(error))
        if isinstance(answer, Refused):
            log.error("the control plane does not take this node's certificate: %s", answer.message)
            self.state.note(last_error=f"its certificate is not taken: {answer.message}")
        elif isinstance(answer, RetryLater):
            log.warning("not heard by the control plane: %s", answer.reason)

    def _first(self) -> Identity:
        identity = self.state.current()
        if identity is None:
            return self._joined(self.join())
        if self.state.attempt("join") is not None and self.joiner is not None:
            try:  # somebody began to join anew; whatever comes of it, there is an identity to go on with
                answer = self.join(once=True)
                identity = answer if isinstance(answer, Identity) else identity
            except (Denied, Untrusted, NoToken, NotConfigured, TpmError) as error:
                log.warning("%s", error)
        self._tell(f"joined as {identity.admission.node_id}")
        return identity

    @staticmethod
    def _joined(answer: Identity | Waiting) -> Identity:
        assert isinstance(answer, Identity)  # without `once` it waits
        return answer

    def _renew(self, identity: Identity, pace: Pace) -> tuple[Identity, float]:
        """The identity from now on, and how long to leave it alone."""
        admission = identity.admission
        server = self.joiner.plan.server if self.joiner else Endpoint.parse(admission.server)
        node_server = self.joiner.plan.node_server if self.joiner else Endpoint.parse(admission.node_server)
        renewer = Renewer(server, node_server, self.state, self.random, self.call_s, self.clock, self.joiner)
        try:
            answer = renewer.once(identity)
        except (Denied, Untrusted) as error:
            log.error("not renewed: %s", error)
            self.state.note(doing="renewing", last_error=str(error))
            return identity, AFTER_REFUSAL_S * (1 + self.random())
        if isinstance(answer, Waiting):
            log.warning("not renewed yet: %s", answer.reason)
            self.state.note(doing="renewing", last_error=answer.reason, request_id=answer.request_id)
            return identity, pace.after(answer.after_s)
        pace.reset()
        self._tell(f"renewed as {answer.admission.node_id}", request_id="", last_error="")
        return answer, 0.0

    def _fetch(self, identity: Identity, plan: SecretsPlan, pace: Pace) -> tuple[bool, float]:
        """Whether the secrets are there, and how long to wait if not."""
        context = trust.verified(identity.trust(), key_file=identity.key_file, chain_file=identity.chain_file)
        node_server = self.joiner.plan.node_server if self.joiner else Endpoint.parse(identity.admission.node_server)
        try:
            answer = Client(node_server, context, self.call_s).secrets(plan.names)
        except Untrusted as error:
            answer = Refused(0, "", str(error))
        if isinstance(answer, Refused):
            log.error("no secrets: %s", answer.message)
            self.state.note(last_error=f"no secrets: {answer.message}")
            return False, AFTER_REFUSAL_S * (1 + self.random())
        if isinstance(answer, RetryLater):
            log.warning("no secrets yet: %s", answer.reason)
            return False, pace.after(answer.after_s)
        given = {secret.name: secret.value for secret in answer.secrets}
        write_secrets(plan, given)
        missing = sorted(set(plan.names) - set(given))
        if missing:
            log.warning("the control plane has no secret named %s", ", ".join(missing))
        pace.reset()
        return True, 0.0

    def _rest(self, answer: Waiting, pace: Pace) -> None:
        seconds = pace.after(answer.after_s)
        log.info("%s; asking again in %.0f s", answer.reason, seconds)
        self.notifier.doing(answer.reason)
        self.notifier.sleep(self.clock, seconds)

    def _tell(self, text: str, **more: str) -> None:
        log.info("%s", text)
        self.notifier.doing(text)
        self.state.note(doing=text, **more)


def write_secrets(plan: SecretsPlan, given: dict[str, str]) -> None:
    """Only those that were asked for: a name from the network becomes no path. Raises OSError."""
    plan.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chmod(plan.folder, 0o700)
    for name in plan.names:
        if name in given and SECRET_NAME.fullmatch(name):
            write_file(plan.folder / name, given[name])
