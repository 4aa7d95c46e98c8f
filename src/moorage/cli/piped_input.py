"""Standard input of ``moorage run -i``, which reaches the session's program through a named pipe.

A shell creates the pipe, waits for its writer and then starts the program. A command in the session
(decision 12) copies the input into the pipe. The input can be read only once, so the session is
stopped instead of starting a second attempt without input.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from moorage.cli import terminal
from moorage.cli.errors import WaitTimeout
from moorage.cli.output import printable
from moorage.cli.summary import has_ended
from moorage.cli.wait import until_session
from moorage.common.model.status import BEFORE_RUNNING
from moorage.sdk import ApiError, Unreachable

if TYPE_CHECKING:
    from moorage.cli.context import Cli
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client
    from moorage.sdk.execution import RunningCommand

_PIPE = 'p="${TMPDIR:-/tmp}/.moorage-stdin-$MOORAGE_KERNEL_ID"'
_READ = f'{_PIPE}; mkfifo -m 600 "$p" || exit 1; exec <"$p"; rm -f "$p"; exec "$@"'
_FEED = f'{_PIPE}; until [ -p "$p" ]; do sleep 0.05; done; exec cat >"$p"'
FEEDER = ("/bin/sh", "-c", _FEED)
# Exit code of cat when the program has closed its input, or has ended.
_NOT_READ = (0, -signal.SIGPIPE, 128 + signal.SIGPIPE)
# The longest time from when a session's commands end until the session itself ends.
_END_S = 10.0


def reading_from_pipe(command: Sequence[str]) -> list[str]:
    """A command that runs ``command`` with the pipe as its standard input."""
    return ["/bin/sh", "-c", _READ, "sh", *command]


async def send_input(command: RunningCommand) -> None:
    """Send standard input to a command in a session, until it ends."""
    with suppress(OSError):
        async for data in terminal.input_pieces():
            await command.send(data)
        await command.end_input()


async def feed(cli: Cli, client: Client, created: SessionView) -> None:
    """Pass standard input to a session's program, and stop the session if the input is
    incomplete."""
    view = await until_session(
        client, created, lambda view: view.status not in BEFORE_RUNNING, clock=cli.clock
    )
    problem = "" if has_ended(view) or view.attempt > 1 else await _copy(client, view)
    if not problem:
        view = await until_session(
            client, created, lambda view: has_ended(view) or view.attempt > 1, clock=cli.clock
        )
        if has_ended(view):
            return

        problem = "its program would have to start again, and standard input can be read only once"

    with suppress(WaitTimeout):  # the session may have ended, which ended the copy
        await until_session(client, created, has_ended, clock=cli.clock, timeout_s=_END_S)
        return

    cli.note(printable(f"moorage: {created.name} is stopped: {problem}", one_line=True))
    await client.sessions.stop(created.id)


async def _copy(client: Client, view: SessionView) -> str:
    """Copy standard input into the pipe. Returns an error, if there was one."""
    from moorage.common.aio.tasks import cancel_and_wait, spawn

    printed = b""
    try:
        from moorage.common.model.commands import ExecSpec

        async with client.sessions.exec(
            view.id, ExecSpec(command=list(FEEDER), stdin=True)
        ) as command:
            sending = spawn("run.stdin", send_input(command))
            try:
                while (output := await command.read()) is not None:
                    printed = (printed + output[1])[-500:]
            finally:
                await cancel_and_wait(sending)

        end = command.end
    except (ApiError, Unreachable) as error:
        return f"its standard input was cut off: {error}"

    if end is not None and end.exit_code in _NOT_READ:
        return ""

    why = end.detail if end is not None and end.detail else printed.decode(errors="replace").strip()
    return f"its standard input was cut off: {why or 'the copy in the session ended'}"
