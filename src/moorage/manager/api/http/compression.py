"""Compression of long answers, for clients that accept it.

A list of 500 agents is JSON of 800 kB, of which 12 kB remain. Answers to writes stay as they are:
they can contain a secret beside text that the caller chose, and their length would then reveal it.
"""

from __future__ import annotations

import asyncio
import zlib

from aiohttp import web

from moorage.common.http.codings import accepts

# Shorter answers gain nothing, longer ones are compressed in a thread.
COMPRESSED_FROM_BYTES = 4096
THREAD_FROM_BYTES = 128 * 1024
# The fastest level: JSON of lists is repetitive, so higher ones save little more.
_LEVEL = 1
_GZIP = 31  # window bits of zlib, with the header of gzip


async def compressed(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """``response``, compressed if it is a long JSON answer to a GET request and the client accepts
    gzip. Others are returned unchanged."""
    if (
        request.method != "GET"
        or not isinstance(response, web.Response)
        or response.content_type != "application/json"
        or not isinstance(response.body, bytes)
        or len(response.body) < COMPRESSED_FROM_BYTES
        or "Content-Encoding" in response.headers
    ):
        return response

    response.headers.add("Vary", "Accept-Encoding")
    if not accepts(request.headers.getall("Accept-Encoding", []), "gzip"):
        return response

    body = response.body
    long = len(body) >= THREAD_FROM_BYTES
    short = await asyncio.to_thread(_gzip, body) if long else _gzip(body)
    packed = web.Response(status=response.status, body=short, headers=response.headers)
    packed.headers["Content-Encoding"] = "gzip"
    return packed


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return packer.compress(body) + packer.flush()
