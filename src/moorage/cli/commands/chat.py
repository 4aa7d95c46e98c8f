"""``moorage chat``: one prompt to a served model, or a conversation on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.app import app
from moorage.cli.completion import endpoint_names
from moorage.cli.context import Cli, command
from moorage.cli.exit_codes import INTERRUPTED
from moorage.cli.lookup import all_endpoints
from moorage.cli.output import printable
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.sdk import chat as ask

if TYPE_CHECKING:
    from moorage.sdk import Client, Message


@command(app)
def chat(
    cli: Cli,
    name: Annotated[
        str | None,
        typer.Argument(
            help="An endpoint; optional when only one is ready.", autocompletion=endpoint_names
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Argument(help="The question. Default: read from stdin.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Maximum length of an answer in tokens.")
    ] = None,
) -> None:
    """Chat with a served model. Without a prompt, start a conversation on a terminal, or read the
    question from stdin.

    \b
    Examples:
      moorage chat tiny "What is a moorage?"
      moorage chat
      moorage chat tiny < question.txt
    """
    if name is not None and prompt is None and len(name.split()) > 1:
        name, prompt = None, name  # names have no spaces, so this is the question

    terminal = sys.stdin.isatty()
    if prompt is None and not terminal:
        prompt = sys.stdin.read().strip()
        if not prompt:
            raise InvalidInput(
                "no question was given", next_step="write it as an argument or to stdin"
            )

    try:
        model = name or cli.run(_only_ready)
        if prompt is not None:
            _print_answer(cli, model, [{"role": "user", "content": prompt}], max_tokens)
        else:
            _converse(cli, model, max_tokens)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


async def _only_ready(client: Client) -> str:
    found = await all_endpoints(client)
    ready = [view.name for view in found if view.ready]
    if len(ready) == 1:
        return ready[0]

    if ready:
        raise InvalidInput(
            f"{len(ready)} models are ready: {', '.join(sorted(ready))}",
            next_step=f"name one: `moorage chat {min(ready)}`",
        )

    raise NotFound(
        "no model is ready",
        next_step="`moorage serve MODEL` serves one; `moorage ps` shows what is starting",
    )


def _print_answer(cli: Cli, model: str, messages: list[Message], max_tokens: int | None) -> str:
    """Print the answer as it streams; with ``-o json`` when it is complete. Returns its text."""
    pieces: list[str] = []

    async def work(_: Client) -> None:
        at = cli.connection
        async for piece in ask(
            at.openai_url, at.key, model, messages, max_tokens=max_tokens, ca_file=at.ca_file
        ):
            pieces.append(piece)
            if not cli.json:
                print(printable(piece), end="", flush=True)

    try:
        cli.run(work)
    finally:
        if pieces and not cli.json:
            print(flush=True)

    if cli.json:
        cli.print_json({"model": model, "content": "".join(pieces)})

    return "".join(pieces)


def _converse(cli: Cli, model: str, max_tokens: int | None) -> None:
    cli.note(f"Talking to {printable(model, one_line=True)}. An empty line or Ctrl-D ends it.")
    messages: list[Message] = []
    while True:
        try:
            question = input("> ").strip()
        except EOFError:
            print(file=sys.stderr)
            return

        if not question:
            return

        messages.append({"role": "user", "content": question})
        answer = _print_answer(cli, model, messages, max_tokens)
        messages.append({"role": "assistant", "content": answer})
