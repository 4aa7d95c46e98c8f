"""Chat of the console: forwards a request for a model to a proxy, and streams the response back.

A page may only connect to its own origin, and the proxies have another one. The request carries its
own key, which the proxy checks; the console's cookie is not forwarded.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from moorage.common.model.errors import InvalidInput, MoorageError, NotFound, Unauthenticated

_MAX_BODY = 256 * 1024
_TIMEOUT = aiohttp.ClientTimeout(total=900, sock_connect=5)


class ProxyUnreachable(MoorageError):
    """No proxy answers at the configured address."""

    code = "proxy-unreachable"
    http = 502


@dataclass
class ModelAddress:
    """Base URL of the OpenAI-compatible API for clients; "" if it is not known.

    ``ca_file``: the CA of its certificate, if the system does not trust it."""

    url: str = ""
    ca_file: str = ""


def add_chat(app: web.Application, prefix: str, address: ModelAddress) -> None:
    """Add the routes of the chat. ``address`` may become known later."""

    async def settings(request: web.Request) -> web.Response:
        return web.json_response({"openai_url": address.url}, headers={"Cache-Control": "no-store"})

    async def chat(request: web.Request) -> web.StreamResponse:
        key = request.headers.get("Authorization", "")
        if not key:
            raise Unauthenticated(
                "the request has no API key", next_step="send 'Authorization: Bearer KEY'"
            )

        if not address.url:
            raise NotFound(
                "the manager does not know the address of its proxies",
                next_step="set manager.openai_url, such as https://models.example.com/v1",
            )

        if request.content_length is None or request.content_length > _MAX_BODY:
            raise InvalidInput(
                f"a chat in the console is limited to {_MAX_BODY} bytes",
                next_step="start a new chat",
            )

        return await _relay(request, address, key, await request.read())

    app.router.add_get(f"{prefix}/settings.json", settings)
    app.router.add_post(f"{prefix}/chat", chat)


async def _relay(
    request: web.Request, address: ModelAddress, key: str, body: bytes
) -> web.StreamResponse:
    trust = ssl.create_default_context(cafile=address.ca_file) if address.ca_file else True
    headers = {"Authorization": key, "Content-Type": "application/json"}
    url = f"{address.url.rstrip('/')}/chat/completions"
    response: web.StreamResponse | None = None
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as http,
            http.post(url, data=body, headers=headers, ssl=trust, allow_redirects=False) as answer,
        ):
            response = web.StreamResponse(
                status=answer.status, headers={"Cache-Control": "no-store"}
            )
            response.content_type = answer.content_type
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)

            await response.write_eof()
            return response
    except (aiohttp.ClientError, TimeoutError) as error:
        if response is None:
            raise ProxyUnreachable(
                f"no proxy answers at {address.url}: {error}",
                next_step="check the proxy, and manager.openai_url",
            ) from error

        if request.transport is not None:
            request.transport.abort()

        return response
