"""`bcmetal-agent`: join, run, status; and ramdisk, inside the ramdisk."""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from bcmetal_agent.bearer import NoToken, TokenSource
from bcmetal_agent.client import CALL_S
from bcmetal_agent.config_drive import ConfigDrive
from bcmetal_agent.join import Denied, Joiner, NotConfigured, Plan, Waiting
from bcmetal_agent.notify import Notifier
from bcmetal_agent.pace import Clock, SystemClock
from bcmetal_agent.ramdisk import Places, Ramdisk
from bcmetal_agent.run import SECRET_NAME, Agent, SecretsPlan
from bcmetal_agent.session import BadSite
from bcmetal_agent.state import DEFAULT_FOLDER, Identity, StateError, StateFolder
from bcmetal_agent.tpm import TpmError
from bcmetal_agent.trust import Endpoint, Pin, Untrusted

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
WAITING: Final = 4
UNTRUSTED: Final = 5
EXPIRED: Final = 6

_EXIT_CODES = """exit codes:
  0  joined; `run`, `ramdisk`: ended by SIGTERM
  1  this machine's files, TPM or token cannot be used
  2  wrong usage
  3  the control plane refused: a person has to look
  4  not joined (yet): waiting for approval, or nobody answered
  5  the server is not the control plane that --ca names; nothing was sent
  6  `status`: joined, but the certificate is past its end
"""
_A_TOKEN: Final = re.compile(r"bcjt_\w+\.[\w-]{16}")
WHY_REFUSED: Final = "(the daemon's log says why; `join --anew` begins with a new key)"
log = logging.getLogger("bcmetal_agent")


class Stopped(BaseException):
    """SIGTERM or SIGINT. The state folder bears being left at any moment."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if any(_A_TOKEN.search(one) for one in given):  # before argparse, which would show it in its error
        sys.stderr.write(
            "bcmetal-agent: everybody on this machine could see the token on the command line: revoke it\n"
        )
        return USAGE
    options = _parser().parse_args(given)
    _log_to_stderr()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    notifier = Notifier.from_environment()
    try:
        return int(options.command(options, notifier, SystemClock()))
    except Stopped:
        notifier.stopping()
        return OK if options.command in (_run, _ramdisk) else WAITING
    except Denied as error:
        return _fails(f"{error} {WHY_REFUSED}" if error.answer.status == 403 else error, REFUSED)
    except Untrusted as error:
        return _fails(error, UNTRUSTED)
    except NotConfigured as error:
        return _fails(error, USAGE)
    except (StateError, TpmError, NoToken, BadSite) as error:
        return _fails(error, FAILED)
    except OSError as error:
        return _fails(f"{error.filename or 'a file'}: {error.strerror}", FAILED)


# ---------------------------------------------------------------- the commands


def _join(options: argparse.Namespace, notifier: Notifier, clock: Clock) -> int:
    state = StateFolder(options.state_dir)
    with state.locked():
        agent = _agent(options, state, notifier, clock)
        answer = agent.join(once=options.once, anew=options.anew)
    if isinstance(answer, Waiting):
        doc = {"joined": False, "waitingFor": answer.reason, "requestId": answer.request_id or None}
        _show(options, doc, [f"not joined yet: {answer.reason}"])
        return WAITING
    doc = {"joined": True, **_facts(answer)}
    files = state.path / "current"
    lines = [f"joined as {doc['nodeId']}", f"certificate: {files / 'chain.pem'}", f"key: {files / 'key.pem'}"]
    _show(options, doc, [*lines, f"renews at {doc['renewAt']}: leave `bcmetal-agent run` to it"])
    return OK


def _run(options: argparse.Namespace, notifier: Notifier, clock: Clock) -> int:
    if options.config_drive is not None and (options.server or options.token_file or options.ca):
        raise NotConfigured("--config-drive says whom to join: --server, --ca and --token-file do not go with it")
    state = StateFolder(options.state_dir)
    with state.locked():
        joined = state.current() is not None and state.attempt("join") is None
        if options.config_drive is not None and not joined:  # afterwards neither the drive nor its token is needed
            drive = ConfigDrive.read(options.config_drive)
            options.server, options.node_server, options.ca = drive.server, drive.node_server, drive.pin
            options.token_file = drive.token.place
        _agent(options, state, notifier, clock).run()
    return OK


def _ramdisk(options: argparse.Namespace, notifier: Notifier, clock: Clock) -> int:
    places = Places(options.token_file, options.site_file, options.run_dir)
    Ramdisk(places, random.SystemRandom().random, clock).run()


def _status(options: argparse.Namespace, notifier: Notifier, clock: Clock) -> int:
    state = StateFolder(options.state_dir)
    identity, last = state.current(), state.status()
    doc: dict[str, Any] = {"joined": identity is not None, "stateDir": str(state.path)}
    lines = ["joined: no"]
    code = WAITING
    if identity is not None:
        expired = clock.now() >= identity.not_after
        code = EXPIRED if expired else OK
        doc |= {**_facts(identity), "expired": expired}
        ends = f"{doc['notAfter']}{' (past its end)' if expired else ''}"
        lines = [
            f"joined: yes, as {doc['nodeId']}",
            f"certificate: {doc['certificate']}, until {ends}",
            f"renews at: {doc['renewAt']}",
            f"server: {doc['server']}, as a node {doc['nodeServer']}",
        ]
    doc["last"] = {_camel(name): value for name, value in asdict(last).items()}
    lines += [f"last: {last.doing} at {last.at}"] if last.doing else []
    lines += [f"request: {last.request_id}"] if last.request_id else []
    lines += [f"last error: {last.last_error} ({last.last_error_at})"] if last.last_error else []
    lines += [f"clock: {abs(last.clock_skew_s)} s off the server's"] if last.clock_skew_s else []
    _show(options, doc, lines)
    return code


def _agent(options: argparse.Namespace, state: StateFolder, notifier: Notifier, clock: Clock) -> Agent:
    draw = random.SystemRandom().random
    joiner = Joiner(_plan(options), state, draw, clock) if options.server else None
    names = tuple(getattr(options, "secrets", None) or ())
    secrets = SecretsPlan(names, options.secrets_dir) if names else None
    return Agent(state, joiner, clock, draw, notifier, secrets, options.call_timeout)


def _plan(options: argparse.Namespace) -> Plan:
    if options.node_server is None:
        raise NotConfigured("--node-server goes with --server: the listener for machines that have joined")
    token = TokenSource(options.token_file) if options.token_file else None
    on_drive = getattr(options, "config_drive", None) is not None  # where nobody can change a file's mode
    if token is not None and not on_drive and token.readable_by_others():
        log.warning("the token file can be read by others than its owner: chmod 600")
    return Plan(
        server=options.server,
        node_server=options.node_server,
        pin=options.ca,
        token=token,
        attestor=options.attestor,
        tcti=options.tcti,
        tenant=options.tenant,
        pool=options.pool,
        root=options.root,
        call_s=options.call_timeout,
    )


# ---------------------------------------------------------------- the options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bcmetal-agent",
        description="Joins this machine to its pool and keeps its certificate fresh.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # `--token VALUE` must not pass for --token-file
    )
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    join = _verb(verbs, "join", "join once, and print the node's id and where its certificate lies", _join)
    _joining(join)
    how = join.add_mutually_exclusive_group()
    how.add_argument("--wait", action="store_true", help="ask again until joined or refused (the default)")
    how.add_argument("--once", action="store_true", help="ask once: exit code 4 if that does not join")
    join.add_argument(
        "--anew",
        action="store_true",
        help="with a new key: after a request was denied, or this node evicted; an identity stays until the new one is there",
    )
    join.add_argument("--json", action="store_true", help="print the result as JSON")
    run = _verb(verbs, "run", "join if need be, then renew in time, for as long as the machine runs", _run)
    _joining(run)
    run.add_argument(
        "--config-drive",
        type=Path,
        metavar="DIR",
        help="where a config drive is mounted whose bcmetal/join.json and bcmetal/token say whom to join",
    )
    run.add_argument("--secrets", nargs="+", metavar="NAME", type=_secret, help="platform secrets to fetch, by name")
    run.add_argument(
        "--secrets-dir",
        type=Path,
        default=Path("/run/bcmetal-agent/secrets"),
        metavar="DIR",
        help="where they go, a file each, 0600 (%(default)s)",
    )
    ramdisk = verbs.add_parser(
        "ramdisk",
        help="in the ramdisk: do what the daemon asks of this machine",
        description="In the ramdisk: say hello with the boot token, then do what the daemon asks of this machine, one task after the other.",
        allow_abbrev=False,
    )
    ramdisk.set_defaults(command=_ramdisk)
    places = Places()
    for option, place, what in (
        ("--token-file", places.token_file, "the boot token's file"),
        ("--site-file", places.site_file, "whom to call, and whom to believe: as `bcmetal ramdisk build` wrote it"),
        ("--run-dir", places.folder, "where the session's key is kept, for an agent that is started again"),
    ):
        ramdisk.add_argument(option, type=Path, default=place, metavar="PATH", help=f"{what} (%(default)s)")
    status = _verb(verbs, "status", "say whether this machine has joined, and until when", _status)
    status.add_argument("--json", action="store_true", help="print it as JSON")
    return parser


def _verb(verbs: Any, name: str, what: str, command: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # `--token VALUE` must not pass for --token-file
    )
    parser.set_defaults(command=command)
    parser.add_argument("--state-dir", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="%(default)s")
    return parser


def _joining(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--server", type=_endpoint, metavar="URL", help="https://HOST:PORT of the join listener")
    add("--node-server", type=_endpoint, metavar="URL", help="https://HOST:PORT for machines that have joined")
    add(
        "--ca",
        type=_pin,
        metavar="PIN",
        help="sha256:… of the CA's root certificate, as `bcmetal token create` prints it",
    )
    add(
        "--token-file",
        metavar="WHERE",
        help="a file with the join token, credential:NAME (systemd's LoadCredential=) or - (standard input)",
    )
    add("--attestor", choices=("token", "discovery", "tpm"), default="token", help="how the machine proves itself")
    add("--tcti", metavar="TCTI", help="which TPM, as tpm2-tools write it (device:/dev/tpmrm0)")
    add("--tenant", metavar="ID", help="only without a token")
    add("--pool", metavar="ID", help="only without a token")
    add("--root", type=Path, default=Path("/"), metavar="DIR", help="where the machine's /sys lies, in a container")
    add("--call-timeout", type=_seconds, default=CALL_S, metavar="SECONDS", help="for a whole call (%(default)s)")


def _endpoint(text: str) -> Endpoint:
    try:
        return Endpoint.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _pin(text: str) -> Pin:
    try:
        return Pin.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _secret(text: str) -> str:
    if not SECRET_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError("a secret's name holds letters, digits, '.', '_' and '-' only")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 600:
        raise argparse.ArgumentTypeError("must be 0.1 to 600 seconds")
    return seconds


# ---------------------------------------------------------------- what people see


def _facts(identity: Identity) -> dict[str, Any]:
    current = identity.folder.parent.parent / "current"
    return {
        "nodeId": identity.admission.node_id,
        "certificate": str(current / "chain.pem"),
        "key": str(current / "key.pem"),
        "trustBundle": str(current / "trust.pem"),
        "notAfter": _at(identity.not_after),
        "renewAt": _at(identity.renew_at),
        "server": identity.admission.server,
        "nodeServer": identity.admission.node_server,
    }


def _show(options: argparse.Namespace, doc: dict[str, Any], lines: list[str]) -> None:
    sys.stdout.write(json.dumps(doc, indent=2) + "\n" if options.json else "\n".join(lines) + "\n")


def _at(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _fails(error: object, code: int) -> int:
    log.error("%s", error)
    return code


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("bcmetal-agent: %(levelname)s: %(message)s"))
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise Stopped
