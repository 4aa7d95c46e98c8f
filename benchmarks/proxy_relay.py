"""Peer in the proxy benchmark: an aiohttp relay that is as fast as aiohttp allows, without any
proxy features.

proxy_relay.py LISTEN_PORT UPSTREAM_PORT
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web
from multidict import CIMultiDict

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "host", "content-length"})


async def main(port: int, upstream: int) -> None:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    )

    async def relay(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        kept = CIMultiDict(
            (k, v) for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP
        )
        url = f"http://127.0.0.1:{upstream}{request.path_qs}"
        async with session.request(request.method, url, headers=kept, data=body) as answer:
            headers = CIMultiDict(
                (k, v) for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP
            )
            first = await answer.content.readany()
            if answer.content.at_eof():
                return web.Response(status=answer.status, headers=headers, body=first)

            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            while first:
                await response.write(first)
                first = await answer.content.readany()

            await response.write_eof()
            return response

    runner = web.ServerRunner(web.Server(relay, handler_cancellation=True, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=8192).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
