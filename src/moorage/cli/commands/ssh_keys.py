"""``moorage keys add-ssh``, ``list-ssh`` and ``remove-ssh``: public keys for SSH at the proxies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.commands.keys import keys
from moorage.cli.completion import names_of
from moorage.cli.context import Cli, Output, command
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.common.views.ssh_keys import SshKeyView


@command(keys, "add-ssh")
def add_ssh(
    cli: Cli,
    file: Annotated[
        str, typer.Argument(help="A .pub file; - reads the key from stdin.", metavar="FILE|-")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the key. Default: the comment in the file.")
    ] = None,
) -> None:
    """Register a public key for SSH and SFTP at the proxies.

    ssh-keygen signs with the private key, from the file beside FILE or from the SSH agent, to prove
    that you hold it.

    The SSH key has the permissions of the API key that registers it, and expires with it. An SSH
    key registered in the console has the permissions of its user.

    \b
    Examples:
      moorage keys add-ssh ~/.ssh/id_ed25519.pub
      ssh-add -L | head -1 | moorage keys add-ssh - --name laptop
    """
    from moorage.cli.ssh.signing import sign
    from moorage.common.views.ssh_keys import SshKeySpec

    public_key = _read(file)
    path = None if file == "-" else Path(file).expanduser()
    if "PRIVATE KEY" in public_key:
        raise InvalidInput(
            f"FILE {file!r} is a private key", next_step="give the file that ends in .pub"
        )

    given = cli.run(lambda client: client.ssh_keys.challenge())
    spec = SshKeySpec(
        public_key=public_key,
        name=name,
        challenge=given.challenge,
        signature=sign(public_key, path, given.challenge, given.namespace),
    )
    _print(cli, cli.run(lambda client: client.ssh_keys.create(spec)))


@command(keys, "list-ssh")
def list_ssh(cli: Cli) -> None:
    """List public keys for SSH: yours, and those registered with keys that you can see."""
    found = cli.run(lambda client: client.ssh_keys.list())
    if cli.json:
        cli.print_json({"ssh_keys": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    else:
        columns = ("NAME", "USER", "FINGERPRINT", "ACTS AS", "CREATED", "LAST USED")
        output.print_table(cli.out, columns, [_row(cli, view) for view in found])


@command(keys, "remove-ssh")
def remove_ssh(
    cli: Cli,
    name: Annotated[
        str,
        typer.Argument(
            help="Name of your SSH key, or a fingerprint.", autocompletion=names_of("ssh-keys")
        ),
    ],
) -> None:
    """Remove a public key for SSH. Logins with it are refused from now on, and its connections are
    closed."""
    _print(cli, cli.run(lambda client: client.ssh_keys.delete(name)))


def _print(cli: Cli, view: SshKeyView) -> None:
    if cli.json:
        cli.print_json(view)
    else:
        print(view.name)


def _row(cli: Cli, view: SshKeyView) -> tuple[str, ...]:
    now = cli.clock.now()
    used = (
        "never" if view.last_used_at is None else f"{output.format_age(now, view.last_used_at)} ago"
    )
    acts_as = f"user {view.user}" if view.key is None else f"key {view.key}"
    created = f"{output.format_age(now, view.created_at)} ago"
    return view.name, view.user, view.fingerprint, acts_as, created, used


def _read(file: str) -> str:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not text"
        raise InvalidInput(
            f"cannot read FILE {file!r}: {reason}",
            next_step="give a .pub file, such as ~/.ssh/id_ed25519.pub",
        ) from None
    return text.strip()
