"""``moorage secrets``: values that sessions receive as environment variables and that cannot be
read back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.app import list_command, noun
from moorage.cli.completion import names_of
from moorage.cli.context import Cli, Output, command
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.common.views.secrets import SecretView

secrets = noun("secrets", help="Write-only values for sessions, such as access tokens.")

Name = Annotated[
    str, typer.Argument(help="Name of the secret.", autocompletion=names_of("secrets"))
]


@command(secrets, "set")
def set_secret(
    cli: Cli,
    name: Name,
    from_file: Annotated[
        Path | None,
        typer.Option(help="Read the value from this file, unchanged. Default: from stdin."),
    ] = None,
) -> None:
    """Store a secret of the key's project, or replace its value. It is encrypted and never shown
    again.

    The value is read from stdin, without its last newline, or typed at a prompt. Sessions receive
    it with `--secret VARIABLE=NAME`; running sessions keep the value they started with.

    \b
    Examples:
      moorage secrets set hf-token < token.txt
      moorage secrets set deploy-key --from-file id_ed25519
      moorage run --secret HF_TOKEN=hf-token -- python train.py
    """
    value = _read_value(name, from_file)
    view = cli.run(lambda client: client.secrets.set(name, value))
    if cli.json:
        cli.print_json(view)
    else:
        print(view.name)


@list_command(secrets)
def list_secrets(cli: Cli) -> None:
    """List the secrets of the key's project, without their values."""
    found = cli.run(lambda client: client.secrets.list())
    if cli.json:
        cli.print_json({"secrets": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    else:
        columns = ("NAME", "PROJECT", "VERSION", "CHANGED", "CHANGED BY")
        output.print_table(cli.out, columns, [_row(cli, view) for view in found])


@command(secrets, "delete")
def delete_secret(cli: Cli, name: Name) -> None:
    """Delete a secret. New sessions cannot use it; existing sessions keep receiving it until they
    end."""
    deleted = cli.run(lambda client: client.secrets.delete(name))
    if cli.json:
        cli.print_json(deleted)
    else:
        print(deleted.name)


def _read_value(name: str, file: Path | None) -> str:
    """Read the value. Raises ``InvalidInput`` if it is empty or not UTF-8, or if the file cannot be
    read."""
    try:
        if file is not None:
            value = file.read_bytes().decode()
        elif sys.stdin.isatty():
            value = str(typer.prompt(f"value of {name}", hide_input=True, err=True))
        else:
            value = sys.stdin.buffer.read().decode().removesuffix("\n")
    except OSError as error:
        raise InvalidInput(f"--from-file {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(
            "the value is not UTF-8 text", next_step="encode it, for example with base64"
        ) from None

    if not value:
        raise InvalidInput("the value is empty", next_step="give it on stdin or with --from-file")

    return value


def _row(cli: Cli, view: SecretView) -> tuple[str, ...]:
    changed = f"{output.format_age(cli.clock.now(), view.changed_at)} ago"
    return view.name, view.project, str(view.version), changed, view.changed_by
