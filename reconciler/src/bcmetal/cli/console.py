"""`bcmetal console`: the machine's serial console in this terminal where the daemon can open it, else the ways by which a person gets there."""

from __future__ import annotations

import base64
import os
import select
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from bcmetal.cli.node_bmc import last_option, node_argument, read_and_show
from bcmetal.cli.session import Exit, Session, shared_options, with_session
from bcmetal.cli.terminal import HELP, Command, PlainText, Typed, raw_terminal
from bcmetal.text import clean

if TYPE_CHECKING:
    from bcmetal.client import Answering, Client, Json

LOOK_S: Final = 0.2
AT_ONCE: Final = 1024  # bytes typed in one call
NO_CONSOLE: Final = "no-console-here"  # the API's word


@click.command(
    epilog="""\b
Examples:
  bcmetal console r3u17
  bcmetal console r3u17 --raw
  bcmetal console r3u17 --ways
"""
)
@node_argument
@click.option("--ways", is_flag=True, help="Open nothing: say by which ways a person gets to the console.")
@click.option(
    "--raw", is_flag=True, help="Hand the machine's escape sequences to this terminal, such as colours and menus need."
)
@last_option
@shared_options
@with_session
def console(session: Session, /, node: str, ways: bool, raw: bool, last: bool) -> None:
    """Open the serial console of NODE in this terminal, through the daemon (IPMI serial over LAN).

    ~. at the start of a line ends it, ~? tells more. Without a terminal, with --json, and where the daemon cannot open it, the ways are
    told by which a person gets there with an account of the BMC's. Each is an audited event.
    """
    if raw and not sys.stdout.isatty():
        raise click.UsageError("--raw is for a terminal: escape sequences go nowhere else")
    opens = sys.stdin.isatty() and sys.stdout.isatty() and not (session.as_json or ways or last)
    if not (opens and _opened(session, node, raw)):
        read_and_show(session, node, ("ways to the console", "console", "consoleWays"), {}, _show_ways, last)


# ---------------------------------------------------------------- open in this terminal


def _opened(session: Session, node: str, raw: bool) -> bool:
    """False where the daemon cannot open it. Ends the process where the console ended by itself."""
    from bcmetal.client import ApiError

    where = {**session.where(), "nodeId": node}
    try:
        answering = session.client.answering("metal", "openConsole", where)
    except ApiError as e:
        if e.details.get("reason") != NO_CONSOLE:
            raise
        click.echo(clean(f"the daemon cannot open it: {e.message}"), err=True)
        return False
    with answering:
        lines = iter(answering)
        console_id = str(next(lines, {}).get("consoleId"))
        click.echo(f"{clean(node)}: the console is open; ~. ends it, ~? tells more", err=True)
        with raw_terminal() as fd:
            keys = _Keys(session.client, {**where, "consoleId": console_id}, fd, answering)
            keys.start()
            try:
                why = _shown(answering, raw)
            finally:
                keys.stop()
    click.echo(clean(f"\nthe console ended: {why}"), err=True)
    if not keys.left:
        sys.exit(Exit.FAILED)
    return True


def _shown(answering: Answering, raw: bool) -> str:
    """Everything that the machine writes, until the console ends; why it did."""
    plain = PlainText()
    for line in answering:
        data = base64.b64decode(line.get("data") or "")
        if data:
            sys.stdout.buffer.write(data if raw else plain.of(data).encode(sys.stdout.encoding, "replace"))
            sys.stdout.buffer.flush()
        if line.get("lost"):
            _say(f"{line['lost']} bytes were lost: this terminal was too slow")
        if line.get("untaken"):
            _say("the BMC does not take what is typed: is the machine on?")
        if "ended" in line:
            return str(line["ended"])
    return "the daemon hung up"


def _say(words: str) -> None:
    sys.stderr.write(f"\r\nbcmetal: {clean(words)}\r\n")
    sys.stderr.flush()


class _Keys:
    """The thread that types. `left`: the person ended the console."""

    def __init__(self, client: Client, where: Json, fd: int, answering: Answering) -> None:
        self.left = False
        self._sent = 0  # bytes, and breaks
        self._client = client
        self._where = where
        self._fd = fd
        self._answering = answering
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        from bcmetal.client import ClientFault

        try:
            self._type()
        except ClientFault as e:
            _say(str(e))
            self._answering.hang_up()

    def _type(self) -> None:
        typed = Typed()
        while not self._over.is_set():
            if not select.select([self._fd], [], [], LOOK_S)[0]:
                continue
            try:
                data = os.read(self._fd, AT_ONCE)
            except OSError:
                data = b""
            if not data:  # the terminal is gone
                self._end()
                return
            for part in typed.parts(data):
                if part is Command.END:
                    self._end()
                    return
                if part is Command.HELP:
                    sys.stderr.write(HELP)
                    sys.stderr.flush()
                elif part is Command.BREAK:
                    self._send({"sendBreak": True}, 1)
                elif isinstance(part, bytes):
                    self._send({"data": base64.b64encode(part).decode()}, len(part))

    def _send(self, what: Mapping[str, Any], size: int) -> None:
        self._call("typeConsole", {**what, "offset": self._sent})
        self._sent += size

    def _end(self) -> None:
        self.left = True
        self._call("closeConsole", {})

    def _call(self, method: str, more: Mapping[str, Any]) -> None:
        self._client.call("metal", method, {**self._where, **more})


# ---------------------------------------------------------------- the ways


def _show_ways(answer: Mapping[str, Any]) -> None:
    if not answer["ways"]:
        click.echo("the BMC offers no way to the serial console that is switched on")
    for way in answer["ways"]:
        click.echo(clean(f"  {_line(way)}"))
        if way["how"]:
            click.echo(clean(f"      then {way['how']}"))


def _line(way: Mapping[str, Any]) -> str:
    host, port = way["host"], way["port"]
    lines = {
        "ssh": f"ssh -p {port} USER@{host}",
        "ipmi-sol": f"ipmitool -I lanplus -H {host} -p {port} -U USER -a sol activate",
        "telnet": f"telnet {host} {port}",
        "web": f"https://{f'[{host}]' if ':' in host else host}:{port}/",
    }
    return lines.get(str(way["kind"]), f"{way['kind']}: {host}:{port}")
