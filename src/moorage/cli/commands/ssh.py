"""``moorage ssh``: connects OpenSSH's programs to a running session."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import terminal
from moorage.cli.app import app
from moorage.cli.completion import kernel_names, session_names
from moorage.cli.context import Cli, command
from moorage.cli.errors import ProgramMissing
from moorage.common.model.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from moorage.sdk import Client


@command(app)
def ssh(
    cli: Cli,
    session: Annotated[
        str, typer.Argument(help="A session's name or id.", autocompletion=session_names)
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After --: a command for the shell.", show_default=False),
    ] = None,
    tty: Annotated[
        bool, typer.Option("--tty", "-t", help="Allocate a terminal even for a command.")
    ] = False,
    kernel: Annotated[
        str, typer.Option(help="In a cluster: the kernel, like sub1.", autocompletion=kernel_names)
    ] = "main1",
    stdio: Annotated[
        bool,
        typer.Option("--stdio", help="Speak SSH on standard input and output, as a ProxyCommand."),
    ] = False,
) -> None:
    """Open a shell in a running session with OpenSSH, or run a command in it.

    With `ProxyCommand moorage ssh --stdio %n` for the session's name in ~/.ssh/config, ssh, scp,
    sftp and rsync reach the session. Anyone who may run commands in the session may connect.

    \b
    Examples:
      moorage ssh dev
      moorage ssh dev -- 'nvidia-smi | head'
      sftp -o 'ProxyCommand moorage ssh --stdio %n' dev
    """
    if stdio:
        if command or tty:
            raise InvalidInput(
                "--stdio takes no command and no --tty",
                next_step="give them to the program that speaks SSH",
            )

        _serve(cli, session, kernel)
    else:
        _start_openssh(cli, session, command=command or [], tty=tty, kernel=kernel)


def _start_openssh(cli: Cli, session: str, command: list[str], tty: bool, *, kernel: str) -> None:
    program = shutil.which("ssh")
    if program is None:
        raise ProgramMissing(
            "there is no program ssh on this machine",
            next_step=(
                "install OpenSSH's client (openssh-client), or use `moorage exec -it SESSION -- sh`"
            ),
        )

    ours = [sys.executable, "-m", "moorage", "ssh", *cli.connection_flags(), "--stdio"]
    proxy = shlex.join([*ours, "--kernel", kernel, "--", session]).replace("%", "%%")
    options = {
        "ProxyCommand": proxy,
        # The host key belongs to a process that this command starts only for this connection.
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": "/dev/null",
        "LogLevel": "ERROR",
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    os.execv(program, ["ssh", *flags, *(["-t"] if tty else []), "--", session, *command])


def _serve(cli: Cli, session: str, kernel: str) -> None:
    if terminal.is_terminal():
        raise InvalidInput(
            "--stdio speaks SSH, but standard input and output are a terminal",
            next_step="run `moorage ssh SESSION`, or name it as ProxyCommand in ~/.ssh/config",
        )

    try:
        from moorage.cli.ssh.server import serve_stdio
    except ModuleNotFoundError as error:
        if error.name != "asyncssh":
            raise

        raise Conflict(
            "SSH needs the package asyncssh", next_step="pip install 'moorage[ssh]' on this machine"
        ) from None

    async def work(client: Client) -> None:
        await serve_stdio(lambda spec: client.sessions.exec(session, spec), kernel)

    cli.run(work)
