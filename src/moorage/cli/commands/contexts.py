"""``moorage contexts``: named installations, and the one that commands use."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from moorage.cli import output
from moorage.cli.app import list_command, noun
from moorage.cli.completion import context_names
from moorage.cli.context import Cli, Output, command
from moorage.common.model.errors import InvalidInput
from moorage.sdk.installation.contexts import (
    LOCAL,
    Context,
    Contexts,
    write_contexts,
    write_private,
)
from moorage.sdk.installation.local_manager import proven_url, trusts_loopback
from moorage.sdk.installation.saved_files import current_context, read_contexts, state_directory

contexts = noun("contexts", help="Installations with their addresses and keys, and the one in use.")

Name = Annotated[str, typer.Argument(help="Name of the context.", autocompletion=context_names)]


@command(contexts)
def add(cli: Cli, name: Name) -> None:
    """Save the address and the key of an installation as a context. An existing context is
    replaced.

    Without --key-file, the key is read from standard input and saved in a file that only you can
    read.

    An http:// address on this machine is replaced by the Unix socket of its manager, which proves
    the manager's identity. An http:// address that is not the manager's is refused, unless
    MOORAGE_INSECURE_LOOPBACK=1 allows sending the key to whatever listens there, such as an SSH
    tunnel.

    \b
    Examples:
      moorage contexts add site --url https://moorage.example.org
      moorage contexts add lab --url http://192.0.2.5:8700 --key-file ~/.lab-key
    """
    url = cli.shared("url")
    if not url:
        raise InvalidInput(
            "a context needs the address of a manager", next_step="give it with --url"
        )

    home = state_directory(os.environ)
    url = proven_url(url, home, is_explicit=True, is_insecure=trusts_loopback(os.environ))
    named = cli.shared("key_file")
    key = Path(named).expanduser().absolute() if named else home / "contexts" / f"{name}.key"
    context = Context(
        url=url,
        openai_url=cli.shared("openai_url") or "",
        key_file=str(key),
        ca_file=str(Path(cli.shared("ca_file") or "").absolute()) if cli.shared("ca_file") else "",
    )
    changed = read_contexts(home).with_context(name, context)
    if not named:
        write_private(key, _read_key())

    write_contexts(home, changed)
    _print(cli, changed, name)


def _read_key() -> str:
    key = getpass.getpass("API key: ") if sys.stdin.isatty() else sys.stdin.readline()
    if not key.strip():
        raise InvalidInput(
            "no API key was given", next_step="write it to stdin, or name a file: --key-file"
        )
    return key.strip() + "\n"


@command(contexts)
def use(cli: Cli, name: Name) -> None:
    """Use this context for the following commands. `local` is the installation of `moorage up` on
    this machine.

    MOORAGE_CONTEXT selects a context for one shell; --url and MOORAGE_URL override contexts.
    """
    home = state_directory(os.environ)
    changed = read_contexts(home).using(name)
    write_contexts(home, changed)
    _print(cli, changed, name)


@command(contexts)
def remove(cli: Cli, name: Name) -> None:
    """Remove a context, and its key if it was saved here."""
    home = state_directory(os.environ)
    known = read_contexts(home)
    changed = known.without(name)
    gone = known.find(name)
    write_contexts(home, changed)
    saved_key = home / "contexts" / f"{name}.key"
    if gone is not None and gone.key_file == str(saved_key):
        saved_key.unlink(missing_ok=True)

    if cli.json:
        cli.print_json({"removed": name})
    else:
        print(name)


@list_command(contexts)
def list_contexts(cli: Cli) -> None:
    """List contexts; a star marks the one in use."""
    known = read_contexts(state_directory(os.environ))
    used = current_context(os.environ)
    if cli.output is Output.NAME:
        print("\n".join((LOCAL, *sorted(known.saved))))
        return

    shown = [_shown(known, name, used) for name in (LOCAL, *sorted(known.saved))]
    if cli.json:
        cli.print_json({"contexts": shown})
        return

    columns = ("", "NAME", "URL", "OPENAI URL", "KEY FILE")
    rows = [
        (
            "*" if context["current"] else "",
            *(str(context[name]) for name in ("name", "url", "openai_url", "key_file")),
        )
        for context in shown
    ]
    output.print_table(cli.out, columns, rows)


def _shown(known: Contexts, name: str, used: str) -> dict[str, str | bool]:
    context = known.find(name) or Context("")
    return {
        "name": name,
        "current": name == used,
        "url": context.url,
        "openai_url": context.openai_url,
        "key_file": context.key_file,
        "ca_file": context.ca_file,
    }


def _print(cli: Cli, known: Contexts, name: str) -> None:
    if cli.json:
        cli.print_json(_shown(known, name, known.current))
    else:
        print(name)
