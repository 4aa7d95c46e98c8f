"""Receivers of notifications on loopback: an HTTP receiver that follows a script, and a real SMTP
server from a package."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast

from aiohttp import web
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Receiver:
    """Accepts webhooks. ``answer``: what it does instead of answering 204."""

    url: str = ""
    answer: Answer | None = None
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.requests]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((headers, await request.read()))
        async with self.arrived:
            self.arrived.notify_all()
        return web.Response(status=204) if self.answer is None else await self.answer(request)

    async def wait_for(self, number: int, seconds: float = 20) -> None:
        """Wait until it has received this many requests."""
        async with asyncio.timeout(seconds), self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= number)


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield made
    finally:
        await runner.cleanup()


@dataclass
class Mailbox:
    """A mail server. ``refuses``: its answer to every recipient; ``hangs``: it never answers to
    the message."""

    port: int = 0
    refuses: str = ""
    hangs: bool = False
    mails: list[EmailMessage] = field(default_factory=list)
    to: list[list[str]] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)

    async def handle_RCPT(self, server: SMTP, *told: Any) -> str:
        _, envelope, address, _ = told
        if self.refuses:
            return self.refuses
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.hangs:
            await asyncio.sleep(3600)
        content = cast(bytes, envelope.content)
        made = message_from_bytes(content, _class=EmailMessage, policy=policy.default)
        self.mails.append(made)
        self.to.append(list(envelope.rcpt_tos))
        self.encrypted.append(server.transport.get_extra_info("sslcontext") is not None)
        return "250 accepted"


def _log_in(*given: Any) -> AuthResult:
    data = given[-1]
    known = isinstance(data, LoginPassword) and data.password == b"correct"
    return AuthResult(success=known, handled=False)


@asynccontextmanager
async def mail_server(
    tls: ssl.SSLContext | None = None, *, direct: bool = False
) -> AsyncIterator[Mailbox]:
    """``tls``: with STARTTLS, which it requires, and a login; ``direct``: TLS from the first
    byte."""
    mailbox = Mailbox()
    options: dict[str, Any] = {"hostname": "mail.test"}
    if tls is not None and not direct:
        options |= {
            "tls_context": tls,
            "require_starttls": True,
            "authenticator": _log_in,
            "auth_required": True,
        }

    server = await asyncio.get_running_loop().create_server(
        lambda: SMTP(mailbox, **options), "127.0.0.1", 0, ssl=tls if direct else None
    )
    mailbox.port = server.sockets[0].getsockname()[1]
    try:
        yield mailbox
    finally:
        server.close()
