"""Commands that register a component with a manager: ``moorage agent join`` and ``moorage proxy
join``."""

from __future__ import annotations

import getpass
import re
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from moorage.common.aio.clock import Clock
from moorage.common.config.loader import LoadedSettings
from moorage.common.link.identity import identity_file
from moorage.common.model.addresses import split_addresses
from moorage.common.model.errors import ConfigError
from moorage.common.views.peers import PeerKind
from moorage.server.bootstrap import bootstrap
from moorage.server.commands.daemons import agent_commands, proxy_commands
from moorage.server.commands.options import (
    ConfigFile,
    HomeDir,
    Overrides,
    load_unshared,
    run_and_exit,
)
from moorage.server.process import needs_extra

Url = Annotated[
    str, typer.Argument(help="The manager's REST API, like http://manager.example.com:8700.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the join token. Default: standard input, with a prompt on a terminal."
    ),
]
Id = Annotated[
    str | None,
    typer.Option(help="Unique name. Default: from the settings, or derived from the host name."),
]
Link = Annotated[
    str | None,
    typer.Option(
        help=(
            "gRPC addresses of the managers, separated by commas. Default: those that the manager "
            "announces."
        )
    ),
]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@agent_commands.command("join")
def agent_join(
    url: Url,
    token_file: TokenFile = None,
    id: Id = None,
    link: Link = None,
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
) -> None:
    """Register this node as an agent: exchange an expiring join token for a key and a certificate.

    Afterwards `moorage agent` finds the manager without further settings. The token's secret does
    not leave this node. It cannot be given as an argument, because every user of the node could
    read it there.

    With `agent.sites`, the agent of each site that has not joined yet joins, and the token needs as
    many uses. --id selects one of them.

    \b
    Examples:
      moorage agent join http://manager.example.com:8700
      moorage agent join https://moorage.example.com --id node-7 --token-file /run/join-token
      ssh manager moorage join-tokens create | moorage agent join http://manager:8700
    """
    _join(
        "agent", url, token_file=token_file, id=id, link=link, config=config, home=home, sets=sets
    )


@proxy_commands.command("join")
def proxy_join(
    url: Url,
    token_file: TokenFile = None,
    id: Id = None,
    link: Link = None,
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
) -> None:
    """Register this host as a proxy: exchange an expiring join token for a key and a certificate.

    \b
    Examples:
      moorage proxy join http://manager.example.com:8700 --token-file /run/join-token
    """
    _join(
        "proxy", url, token_file=token_file, id=id, link=link, config=config, home=home, sets=sets
    )


def _join(
    kind: PeerKind,
    url: str,
    token_file: Path | None,
    id: str | None,
    *,
    link: str | None,
    config: ConfigFile,
    home: HomeDir,
    sets: Overrides,
) -> None:
    # Shared settings in etcd never contain names, so a new host can join while etcd is down.
    boot = bootstrap(load_unshared(config, home, sets))
    with needs_extra(kind):
        from moorage.server.registration import join

    names = _names(kind, boot.loaded, home=boot.home, clock=boot.clock, id=id)
    for name in names:
        if not _NAME.fullmatch(name):
            article = "an" if kind == "agent" else "a"
            raise ConfigError(
                f"{name!r} is not a name for {article} {kind}",
                next_step=(
                    "set one with --id: letters, digits, dots, - and _, the first a letter or digit"
                ),
            )

    if link is not None:
        split_addresses(link)

    secret = _read_token(token_file)

    async def main() -> int:
        for name in names:
            identity = await join(
                url, secret, kind=kind, name=name, home=boot.home, clock=boot.clock, link=link
            )
            group = (
                f" in resource group {identity.resource_group}" if identity.resource_group else ""
            )
            print(
                f"{kind} {identity.name} joined{group}; its certificate is valid until "
                f"{identity.ends:%Y-%m-%d} and renews itself"
            )

        print(f"next: moorage {kind}")
        return 0

    run_and_exit(main())


def _names(
    kind: PeerKind, loaded: LoadedSettings, home: Path, clock: Clock, *, id: str | None
) -> list[str]:
    """The agents that are to join. Raises ``ConfigError`` if those of all sites have already
    joined."""
    if id is not None:
        return [id]

    settings = loaded.settings
    host = socket.gethostname()
    if kind == "proxy":
        with needs_extra(kind):
            from moorage.proxy import proxy_id
        return [proxy_id(settings.proxy, home, clock)]

    if not loaded.sites:
        return [settings.agent.id or host]

    names = [str(site.id) for site in loaded.sites.values()]
    files = {name: identity_file(home, kind, name).load() for name in names}
    missing = [
        name for name, known in files.items() if known is None or known.find_problem(clock.now())
    ]
    if not missing:
        raise ConfigError(f"the agents of all sites have joined already: {', '.join(names)}")

    return missing


def _read_token(file: Path | None) -> str:
    """The join token in ``file``, or from standard input. Raises ``ConfigError``."""
    if file is not None:
        try:
            secret = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--token-file {file} cannot be read: {error}") from error
    elif sys.stdin.isatty():
        secret = getpass.getpass("Join token: ")
    else:
        secret = sys.stdin.readline(4096)

    if not secret.strip():
        raise ConfigError(
            "no join token was given",
            next_step="create one on the manager's host with `moorage join-tokens create`; pass "
            "it with "
            "--token-file, or on standard input",
        )

    return secret.strip()
