"""``moorage claude`` and ``moorage codex``: coding agents that use a served model."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import times
from moorage.cli.app import app
from moorage.cli.coding_agents import (
    CLAUDE,
    CODEX,
    SMALL_CONTEXT,
    CodingAgent,
    CodingLaunch,
    CodingModel,
)
from moorage.cli.completion import endpoint_names
from moorage.cli.context import Cli, command
from moorage.cli.errors import ProgramMissing
from moorage.cli.interrupts import terminated_like_ctrl_c
from moorage.cli.output import printable
from moorage.common.model.errors import Conflict, MoorageError, NotFound
from moorage.common.model.exit_codes import shell_exit_code
from moorage.common.model.roles import PLATFORM_ROLES
from moorage.sdk import ApiError

if TYPE_CHECKING:
    from moorage.common.views.keys import NewKeyView
    from moorage.sdk import Client
    from moorage.sdk.served_models import ServedModel

# Proxies learn about a new key within moments.
_KNOWN_WITHIN_S = 10.0
_ASK_EVERY_S = 0.1

_Model = Annotated[
    str, typer.Argument(help="A served model: its endpoint's name.", autocompletion=endpoint_names)
]
_Arguments = Annotated[
    list[str] | None,
    typer.Argument(help="After --: arguments for the program.", show_default=False),
]
_PrintEnv = Annotated[
    bool, typer.Option("--print-env", help="Print shell commands instead of starting the program.")
]
_Expires = Annotated[
    str,
    typer.Option(
        help="Expiry of the key: a duration (12h, 30d) or a time like 2030-01-01T00:00:00Z."
    ),
]


@command(app)
def claude(
    cli: Cli,
    model: _Model,
    arguments: _Arguments = None,
    print_env: _PrintEnv = False,
    expires: _Expires = "12h",
) -> None:
    """Start Claude Code with a served model.

    It gets its own key, valid only for this model and revoked when it ends. All other settings of
    Claude Code stay as they are.

    \b
    Examples:
      moorage claude coder
      moorage claude coder -- -p 'explain this repository'
      eval "$(moorage claude coder --print-env)"
    """
    _start(
        cli, CLAUDE, model=model, arguments=arguments or [], print_env=print_env, expires=expires
    )


@command(app)
def codex(
    cli: Cli,
    model: _Model,
    arguments: _Arguments = None,
    print_env: _PrintEnv = False,
    expires: _Expires = "12h",
) -> None:
    """Start Codex with a served model.

    It gets its own key, valid only for this model and revoked when it ends. All other settings of
    Codex stay as they are.

    \b
    Examples:
      moorage codex coder
      moorage codex coder -- exec 'explain this repository'
      eval "$(moorage codex coder --print-env)"
    """
    _start(cli, CODEX, model=model, arguments=arguments or [], print_env=print_env, expires=expires)


def _start(
    cli: Cli, agent: CodingAgent, model: str, arguments: list[str], *, print_env: bool, expires: str
) -> None:
    program = shutil.which(agent.program)
    if program is None and not print_env:
        raise ProgramMissing(
            f"there is no program {agent.program} on this machine",
            next_step=f"npm install -g {agent.package}",
        )

    key: NewKeyView | None = None
    kept = False
    try:
        with terminated_like_ctrl_c() as interrupted:
            key = cli.run(
                lambda client: _new_key(cli, client, agent=agent, model=model, expires=expires)
            )
            at = cli.connection
            served = cli.run(lambda _: _served(cli, agent, model, key.secret))
            launch = agent.launch(
                CodingModel(
                    at.openai_url,
                    model,
                    key=key.secret,
                    max_model_len=served.max_model_len,
                    ca_file=at.ca_file,
                )
            )
            if program is None or print_env:
                _print(cli, agent, launch, key)
                kept = True
                return

            raise typer.Exit(_wait_for([program, *launch.options, *arguments], launch))
    except KeyboardInterrupt:
        raise typer.Exit(interrupted.exit_code) from None
    finally:
        if key is not None and not kept:
            _revoke(cli, key)


async def _new_key(
    cli: Cli, client: Client, agent: CodingAgent, model: str, *, expires: str
) -> NewKeyView:
    from moorage.common.views.keys import KeySpec

    me = await client.users.me()
    spec = KeySpec(
        name=f"{agent.program}-{cli.clock.new_id()[-12:]}",
        user=me.user,
        project=me.project,
        scopes=["models:use"],
        models=[model],
        expires_at=times.future(expires, cli.clock.now(), "--expires"),
    )

    # An administrator does not have to be a member of any project.
    return await client.keys.create(
        spec.model_copy(update={"role": me.role}) if me.role in PLATFORM_ROLES else spec
    )


async def _served(cli: Cli, agent: CodingAgent, model: str, key: str) -> ServedModel:
    """Wait until the proxy knows the key, and return the model.

    Raises ``NotFound``, and ``Conflict`` for an engine without the API.
    """
    from moorage.sdk.served_models import served_model

    at = cli.connection
    clock = cli.clock
    until = clock.monotonic() + _KNOWN_WITHIN_S
    while True:
        try:
            served = await served_model(at.openai_url, key, model, ca_file=at.ca_file)
        except ApiError as error:
            if error.status == 404:
                raise NotFound(
                    f"there is no model {model!r}", next_step="`moorage endpoints` lists models"
                ) from None

            if error.status != 401 or clock.monotonic() >= until:
                raise

            await asyncio.sleep(_ASK_EVERY_S)
            continue

        if served.capabilities is not None and agent.api not in served.capabilities:
            raise Conflict(
                f"the engine of {model!r} lacks {agent.api}, which {agent.program} needs",
                next_step="serve the model with vLLM or llama.cpp",
            )

        if served.max_model_len is not None and served.max_model_len < SMALL_CONTEXT:
            cli.note(
                f"moorage: warning: the context of {model} has {served.max_model_len} tokens; "
                "coding agents "
                f"need about {SMALL_CONTEXT}, see --max-model-len of vLLM and --ctx-size of "
                "llama.cpp"
            )

        return served


def _print(cli: Cli, agent: CodingAgent, launch: CodingLaunch, key: NewKeyView) -> None:
    if cli.json:
        cli.print_json(
            {
                "environment": dict(launch.environment),
                "options": list(launch.options),
                "key": key.name,
                "expires_at": None if key.expires_at is None else key.expires_at.isoformat(),
            }
        )
        return

    print(agent.script(launch))
    cli.note(
        f"moorage: the key {key.name} is valid until {key.expires_at:%Y-%m-%d %H:%M %Z}; "
        f"`moorage keys revoke {key.name}` revokes it"
    )


def _wait_for(command: list[str], launch: CodingLaunch) -> int:
    """Run a program on this terminal until it ends, and return its exit code."""
    environment = {
        name: value for name, value in os.environ.items() if name not in launch.environment
    }
    environment |= {name: value for name, value in launch.environment.items() if value is not None}
    with _signals_to_child() as children:
        children.append(child := subprocess.Popen(command, env=environment))
        code = child.wait()
    return shell_exit_code(code)


@contextmanager
def _signals_to_child() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Forward SIGTERM and SIGHUP to the program. Ctrl-C is not forwarded, because the terminal
    sends it to both."""
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: Any) -> None:
        for child in children:
            child.send_signal(number)

    def ignore(*_: Any) -> None:
        """Do nothing. SIG_IGN is not used, because the program would inherit it."""

    handlers = {
        signal.SIGTERM: forward,
        signal.SIGHUP: forward,
        signal.SIGINT: ignore,
        signal.SIGQUIT: ignore,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield children
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _revoke(cli: Cli, key: NewKeyView) -> None:
    try:
        cli.run(lambda client: client.keys.revoke(key.name))
    except MoorageError as error:
        cli.note(
            f"moorage: the key {key.name} was not revoked and expires at "
            f"{key.expires_at:%Y-%m-%d %H:%M %Z} "
            f"({printable(str(error), one_line=True)})"
        )
