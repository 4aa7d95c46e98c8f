"""``moorage open``: the address of an app of a session."""

from __future__ import annotations

import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.app import app
from moorage.cli.completion import app_names, session_names
from moorage.cli.context import Cli, command, duration_option
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.common.views.access_tokens import MONTH_S, WORKING_DAY_S, AccessTokenSpec, AppView

if TYPE_CHECKING:
    from moorage.sdk import Client

Session = Annotated[
    str, typer.Argument(help="The session's name or id.", autocompletion=session_names)
]
Lifetime = Annotated[
    float,
    duration_option(
        "How long the address stays valid.", min_s=10, max_s=MONTH_S, show_default="8h"
    ),
]


@command(app, "open")
def open_app(
    cli: Cli,
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[APP]",
            help="A service port of the session; optional if it has only one.",
            autocompletion=app_names,
        ),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser", help="Also open the address in a browser.")
    ] = False,
    lifetime: Lifetime = WORKING_DAY_S,
) -> None:
    """Print the address of an app of a session, including a new access token.

    Do not share the address: anyone who has it can use the app until the access token expires.

    \b
    Examples:
      moorage open lab
      moorage open lab jupyter --browser
      moorage open lab --lifetime 10m
    """

    async def work(client: Client) -> tuple[AppView, str]:
        view = choose_app(await client.apps.list(session), name, session)
        if view.protocol == "tcp":
            raise InvalidInput(
                f"{view.name!r} uses raw TCP, which a browser cannot open",
                next_step=(
                    f"`moorage port-forward {session} {view.name}` forwards a local port to it"
                ),
            )

        created = await client.access_tokens.create(
            session, view.name, AccessTokenSpec(lifetime_s=lifetime)
        )
        return view, f"{proxy_url(cli)}{created.path}/?access_token={created.access_token}"

    view, url = cli.run(work)
    if cli.json:
        cli.print_json({"app": view.name, "url": url, "ready": view.ready})
    else:
        print(url)

    if not view.ready:
        cli.note(f"moorage: {session} is not running yet; the address will work as soon as it is")
    if browser and not webbrowser.open(url):
        cli.note("moorage: no browser was found; open the address yourself")


def choose_app(apps: list[AppView], name: str | None, session: str) -> AppView:
    """The app with this name, or the only one if no name is given. Raises ``NotFound``, or
    ``InvalidInput`` if there are several."""
    names = ", ".join(view.name for view in apps)
    if not apps:
        raise NotFound(
            f"{session} has no service port",
            next_step=(
                "declare one at its start: `moorage start --port NAME -- PROGRAM {port:NAME}`"
            ),
        )

    if name is None:
        candidates = [view for view in apps if view.protocol == "http"] or apps
        if len(candidates) > 1:
            raise InvalidInput(f"{session} has several apps", next_step=f"name one: {names}")

        return candidates[0]

    found = next((view for view in apps if view.name == name), None)
    if found is None:
        raise NotFound(f"{session} has no app {name!r}", next_step=f"it has: {names}")

    return found


def proxy_url(cli: Cli) -> str:
    return cli.connection.openai_url.rstrip("/").removesuffix("/v1")
