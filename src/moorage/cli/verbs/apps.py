"""``moorage open`` and ``moorage port-forward``: the service ports of sessions."""

from __future__ import annotations

import asyncio
import webbrowser
from typing import Annotated

import typer

from moorage.cli.app import app
from moorage.cli.context import Cli, verb
from moorage.cli.failures import INTERRUPTED
from moorage.cli.forwarding import Forwarding
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.common.views.access_tokens import MONTH_S, WORKING_DAY_S, AccessTokenSpec, AppView
from moorage.sdk import Client

Session = Annotated[str, typer.Argument(help="The session's name or id.")]
Lifetime = Annotated[
    float, typer.Option(min=10, max=MONTH_S, help="The address opens it for so many seconds.")
]


@verb(app, "open")
def open_app(
    cli: Cli,
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[APP]", help="Its service port; may be left out where it has one."),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser", help="Also open it in your browser.")] = False,
    lifetime: Lifetime = WORKING_DAY_S,
) -> None:
    """Print the address of an app of a session, with a fresh access token in it.

    Whoever has the address can use the app until the access token expires: it is not for sharing.

    \b
    Examples:
      moorage open lab
      moorage open lab jupyter --browser
      moorage open lab --lifetime 600
    """

    async def work(client: Client) -> tuple[AppView, str]:
        view = choose(await client.list_apps(session), name, session)
        if view.protocol == "tcp":
            raise InvalidInput(
                f"{view.name!r} speaks raw TCP, which has no address in a browser",
                next_step=f"`moorage port-forward {session} {view.name}` gives it a port on this machine",
            )
        made = await client.create_access_token(session, view.name, AccessTokenSpec(lifetime_s=lifetime))
        return view, f"{proxy_url(cli)}{made.path}/?access_token={made.access_token}"

    view, url = cli.run(work)
    if cli.json:
        cli.print_json({"app": view.name, "url": url, "ready": view.ready})
    else:
        print(url)
    if not view.ready:
        cli.say(f"moorage: {session} does not run yet; the address works once it does")
    if browser and not webbrowser.open(url):
        cli.say("moorage: there is no browser here; open the address yourself")


@verb(app, "port-forward")
def port_forward(
    cli: Cli,
    session: Session,
    name: Annotated[str, typer.Argument(metavar="APP", help="Its service port.")],
    local: Annotated[
        int, typer.Argument(metavar="[LOCALPORT]", min=0, max=65535, help="On this machine; 0: any.")
    ] = 0,
) -> None:
    """Give a service port of a session a port on this machine, until Ctrl-C.

    \b
    Examples:
      moorage port-forward lab db 5432
      moorage port-forward lab ssh
    """

    async def work(client: Client) -> None:
        view = choose(await client.list_apps(session), name, session)
        async with Forwarding(client, session, view, proxy_url(cli), cli.say) as forwarding:
            port = await forwarding.listen(local)
            print(f"127.0.0.1:{port}", flush=True)
            cli.say(f"moorage: that is {name} of {session}; Ctrl-C ends it")
            await asyncio.Event().wait()

    try:
        cli.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def choose(apps: list[AppView], name: str | None, session: str) -> AppView:
    """Raises ``NotFound``, or ``InvalidInput`` where one must be named."""
    known = ", ".join(view.name for view in apps)
    if not apps:
        raise NotFound(
            f"{session} has no service port",
            next_step="declare one when it is made: `moorage start --port NAME -- PROGRAM {port:NAME}`",
        )
    if name is None:
        candidates = [view for view in apps if view.protocol == "http"] or apps
        if len(candidates) > 1:
            raise InvalidInput(f"{session} has several apps", next_step=f"name one: {known}")
        return candidates[0]
    found = next((view for view in apps if view.name == name), None)
    if found is None:
        raise NotFound(f"{session} has no app {name!r}", next_step=f"it has: {known}")
    return found


def proxy_url(cli: Cli) -> str:
    return cli.connection.openai_url.rstrip("/").removesuffix("/v1")
