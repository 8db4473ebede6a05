"""Renewing: a new key, written down first, and the old identity to vouch for it.

Within the certificate's life over mTLS; past its end over the join listener, the request signed with the old key. The
same identity never asks with two keys: the daemon would take the second for a clone of this machine.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from bcmetal_agent import keys, trust, wire
from bcmetal_agent.calls import RetryLater
from bcmetal_agent.client import Client, Refused, RenewAnswer
from bcmetal_agent.join import Joiner, Waiting, settle
from bcmetal_agent.pace import Clock, SystemClock
from bcmetal_agent.state import Attempt, Identity, StateFolder
from bcmetal_agent.trust import Endpoint, Untrusted

log = logging.getLogger("bcmetal_agent")


@dataclass
class Renewer:
    """`joiner`: for its pin, which may vouch for a root that changed while this machine was off."""

    server: Endpoint
    node_server: Endpoint
    state: StateFolder
    random: Callable[[], float]
    call_s: float
    clock: Clock = field(default_factory=SystemClock)
    joiner: Joiner | None = None

    def once(self, identity: Identity) -> Identity | Waiting:
        """One call. Raises Denied, Untrusted, StateError."""
        attempt = self._begin(identity)
        csr = wire.decode(wire.Renew, attempt.message.encode()).csr
        answer: RenewAnswer
        if self.clock.now() < identity.not_after:
            answer = self._as_a_node(identity, attempt)
            # perhaps past its end by the server's clock, which counts
            if isinstance(answer, RetryLater) and answer.cut:
                answer = _better(answer, self._past_the_end(identity, csr))
        else:
            answer = self._past_the_end(identity, csr)
            if isinstance(answer, Refused):  # perhaps this machine's clock is ahead, and the end has not come
                answer = _better(answer, self._as_a_node(identity, attempt))
        where = (self.server, self.node_server)
        return settle(answer, attempt.key, where, self.state, self.clock, self.random)

    def _begin(self, identity: Identity) -> Attempt:
        found = self.state.attempt("next")
        if found is None:
            key = keys.new_key()
            message = wire.encode(wire.Renew(keys.request_pem(key))).decode()
            found = Attempt(keys.key_pem(key), message, replaces=identity.name)
            self.state.keep("next", found)
        return found

    def _as_a_node(self, identity: Identity, attempt: Attempt) -> RenewAnswer:
        context = trust.verified(identity.trust(), key_file=identity.key_file, chain_file=identity.chain_file)
        return Client(self.node_server, context, self.call_s).renew(attempt.message.encode())

    def _past_the_end(self, identity: Identity, csr: str) -> RenewAnswer:
        signature = keys.sign(keys.read_key(identity.key()), wire.renewal_statement(keys.request_der(csr)))
        leaf = keys.pem(keys.split_pem(identity.chain())[0])
        message = wire.encode(wire.Renew(csr, wire.Expired(leaf, base64.b64encode(signature).decode())))
        try:
            return Client(self.server, trust.verified(identity.trust()), self.call_s).renew(message)
        except Untrusted:
            if self.joiner is None or self.joiner.plan.pin is None:
                raise
            log.warning(
                "the roots that came with the certificate do not vouch for the server; asking for the pinned one"
            )
            root = self.joiner.pinned()
            if isinstance(root, RetryLater):
                return root
            return Client(self.server, trust.verified(root), self.call_s).renew(message)


def _better(first: RenewAnswer, second: RenewAnswer) -> RenewAnswer:
    return first if isinstance(second, Refused | RetryLater) else second
