"""A hub on loopback: the part of the Hub's API that we use, over files in memory.

It runs on its own loop in a thread. ``requests``: method, path and Range of each request.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Mapping
from typing import Any, Self

from aiohttp import web

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TINY_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 256,
    "vocab_size": 520, "max_position_embeddings": 2048, "torch_dtype": "float32",
}  # fmt: skip


class LocalHub:
    """``models``: files by path, by id. ``tokens``: ids that need a token. ``cut``: paths whose
    next download ends after this many bytes; ``held``: paths whose downloads stop there and
    wait."""

    def __init__(
        self, models: Mapping[str, Mapping[str, bytes]], tokens: Mapping[str, str] = {}
    ) -> None:
        self.models = models
        self.tokens = tokens
        self.cut: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._runner = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/api/models/{owner}/{name}/revision/{revision}", self._info)
        app.router.add_get("/api/models/{owner}/{name}", self._info)
        app.router.add_get("/api/models/{owner}/{name}/tree/{revision}", self._tree)
        app.router.add_get("/{owner}/{name}/resolve/{revision}/{path:.+}", self._file)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

        return runner

    def _files(self, request: web.Request) -> Mapping[str, bytes]:
        self.requests.append((request.method, request.path, request.headers.get("Range", "")))
        model = f"{request.match_info['owner']}/{request.match_info['name']}"
        wanted = self.tokens.get(model)
        if wanted and request.headers.get("Authorization") != f"Bearer {wanted}":
            raise web.HTTPUnauthorized(headers={"X-Error-Code": "GatedRepo"})
        if model not in self.models:
            raise web.HTTPNotFound(headers={"X-Error-Code": "RepoNotFound"})
        return self.models[model]

    async def _info(self, request: web.Request) -> web.Response:
        files = self._files(request)
        siblings = [_sibling(path, data) for path, data in files.items()]
        return web.json_response(
            {
                "id": f"{request.match_info['owner']}/{request.match_info['name']}",
                "sha": COMMIT,
                "siblings": siblings,
            }
        )

    async def _tree(self, request: web.Request) -> web.Response:
        files = self._files(request)
        return web.json_response(
            [
                {"type": "file", "path": path, "size": len(data), "oid": _etag(data)}
                for path, data in files.items()
            ]
        )

    async def _file(self, request: web.Request) -> web.StreamResponse:
        files = self._files(request)
        path = request.match_info["path"]
        if path not in files:
            raise web.HTTPNotFound(headers={"X-Error-Code": "EntryNotFound"})

        data = files[path]
        given = request.headers.get("Range", "")
        start = int(given.removeprefix("bytes=").partition("-")[0]) if given else 0
        response = web.StreamResponse(
            status=206 if given else 200,
            headers={
                "ETag": f'"{_etag(data)}"',
                "X-Repo-Commit": COMMIT,
                "Content-Length": str(len(data) - start),
                "Accept-Ranges": "bytes",
            }
            | ({"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if given else {}),
        )
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        if (held := self.held.get(path)) is not None:
            await response.write(data[start : max(start, held)])
            await asyncio.sleep(600)

        cut = self.cut.pop(path, None)
        if cut is None:
            await response.write(data[start:])
            return response

        await response.write(data[start : start + cut])
        transport = request.transport
        assert transport is not None
        transport.close()

        return response


def _etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sibling(path: str, data: bytes) -> dict[str, Any]:
    """Large files have a checksum, like files in Git LFS."""
    lfs = (
        {"sha256": _etag(data), "size": len(data), "pointerSize": 134} if len(data) > 4096 else None
    )
    return {"rfilename": path, "size": len(data), "blobId": _etag(data)} | (
        {"lfs": lfs} if lfs else {}
    )


def tiny_model(weights: bytes = b"\0" * 1000) -> dict[str, bytes]:
    return {
        "config.json": json.dumps(TINY_CONFIG).encode(),
        "model.safetensors": weights,
        "README.md": b"# tiny\n",
    }
