"""``moorage port-forward``: forwards a local port to a service port of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import aiohttp
import typer

from moorage.cli.app import app
from moorage.cli.commands.open import Session, choose_app, proxy_url
from moorage.cli.completion import app_names
from moorage.cli.context import Cli, command
from moorage.cli.interrupts import terminated_like_ctrl_c
from moorage.cli.output import printable
from moorage.common.aio.sockets import keep_alive_socket, reset
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.errors import InvalidInput, MoorageError
from moorage.sdk import ApiError
from moorage.sdk.tunnel import forward_connection
from moorage.sdk.verification import verification

if TYPE_CHECKING:
    from moorage.common.views.access_tokens import AppView, NewAccessTokenView
    from moorage.sdk import Client

_UNAUTHORIZED = 401


@command(app, "port-forward")
def port_forward(
    cli: Cli,
    session: Session,
    name: Annotated[
        str,
        typer.Argument(
            metavar="APP", help="A service port of the session.", autocompletion=app_names
        ),
    ],
    local: Annotated[
        int,
        typer.Argument(
            metavar="[LOCALPORT]",
            min=0,
            max=65535,
            help="Port on this machine; 0 means any free port.",
        ),
    ] = 0,
) -> None:
    """Forward a local port to a service port of a session, until Ctrl-C.

    \b
    Examples:
      moorage port-forward lab db 5432
      moorage port-forward lab ssh
    """

    async def work(client: Client) -> None:
        view = choose_app(await client.apps.list(session), name, session)
        async with PortForward(
            client,
            session,
            view=view,
            proxy_url=proxy_url(cli),
            report=cli.note,
            ca_file=cli.connection.ca_file,
        ) as forward:
            port = await forward.listen(local)
            print(f"127.0.0.1:{port}", flush=True)
            cli.note(f"moorage: forwarding to {name} of {session}; Ctrl-C ends it")
            await asyncio.Event().wait()

    try:
        with terminated_like_ctrl_c() as interrupted:
            cli.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(interrupted.exit_code) from None


class PortForward:
    """A forwarder of connections to one app: a context manager that creates an access token and
    revokes it at exit.

    ``report`` receives errors of individual connections. Such an error closes only its own
    connection.
    """

    def __init__(
        self,
        client: Client,
        session: str,
        view: AppView,
        proxy_url: str,
        *,
        report: Callable[[str], None],
        ca_file: str | None = None,
    ) -> None:
        self._ca_file = ca_file
        self._client = client
        self._session = session
        self._view = view
        self._report = report
        self._url = f"{proxy_url}{view.path.replace('/apps/', '/tunnel/', 1)}"
        self._access_token: NewAccessTokenView | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[object]] = set()

    async def __aenter__(self) -> Self:
        self._access_token = await self._client.access_tokens.create(self._session, self._view.name)
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            connector=aiohttp.TCPConnector(
                socket_factory=keep_alive_socket, ssl=verification(self._url, self._ca_file) or True
            ),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()

        await cancel_and_wait(*self._connections)
        await self._http.close()
        if self._access_token is not None:
            try:
                await self._client.access_tokens.revoke(
                    self._session, self._view.name, self._access_token.id
                )
            except MoorageError:
                pass  # it expires

    async def listen(self, port: int) -> int:
        """Start listening, and return the port. Raises ``InvalidInput`` if ``port`` is taken."""
        try:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        except OSError as error:
            raise InvalidInput(
                f"cannot listen on local port {port}: {error.strerror or error}",
                next_step="give another port, or none",
            ) from None
        return int(self._server.sockets[0].getsockname()[1])

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio would report its own connection task as failed when it is cancelled.
        task = spawn("port-forward.connection", self._connected(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._forward(reader, writer)
        except MoorageError as error:
            step = f"; {error.next_step}" if error.next_step else ""
            self._report(printable(f"moorage: {error.message}{step}", one_line=True))
            reset(writer.transport)
        finally:
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._access_token is not None
        access_token = self._access_token
        try:
            await forward_connection(
                self._http,
                self._url,
                access_token=access_token.access_token,
                reader=reader,
                writer=writer,
            )
        except ApiError as error:
            if error.status != _UNAUTHORIZED:
                raise

            # The token has expired. Another connection may have renewed it already.
            if self._access_token is access_token:
                self._access_token = await self._client.access_tokens.create(
                    self._session, self._view.name
                )

            await forward_connection(
                self._http,
                self._url,
                access_token=self._access_token.access_token,
                reader=reader,
                writer=writer,
            )
