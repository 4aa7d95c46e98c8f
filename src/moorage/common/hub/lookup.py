"""Requests to a hub's API: the files of a model, and its ``config.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moorage.common.hub.cache import HubSettings

if TYPE_CHECKING:
    import aiohttp

_TIMEOUT_S = 10.0
_MAX_BYTES = 32 * 1024 * 1024  # enough for the file list of a model with tens of thousands of files


class HubFailed(Exception):
    """The hub gave no usable answer. The message explains why; ``next_step`` is the recommended
    action."""

    def __init__(self, message: str, next_step: str = "") -> None:
        self.message = message
        self.next_step = next_step
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class HubFiles:
    """A model's files at one commit: size in bytes, by path."""

    commit: str
    sizes: dict[str, int]


async def list_files(hub: HubSettings, model: str, revision: str = "main") -> HubFiles:
    """List the files of a model. Raises ``HubFailed``."""
    found = await _get_json(hub, model, f"/api/models/{model}/revision/{revision}?blobs=true")
    sizes = {
        str(file["rfilename"]): int(file.get("size") or 0)
        for file in found.get("siblings") or ()
        if isinstance(file, dict) and "rfilename" in file
    }
    return HubFiles(str(found.get("sha") or revision), sizes)


async def fetch_config(hub: HubSettings, model: str, revision: str = "main") -> dict[str, Any]:
    """Fetch the ``config.json`` of a model. Raises ``HubFailed``."""
    return await _get_json(hub, model, f"/{model}/resolve/{revision}/config.json")


async def _get_json(hub: HubSettings, model: str, path: str) -> dict[str, Any]:
    # Imported here because most commands do not use a hub.
    import aiohttp

    if hub.offline:
        raise HubFailed(
            "HF_HUB_OFFLINE is set, and the cache has no such model", "unset it, or fill the cache"
        )

    headers = {"Authorization": f"Bearer {hub.token}"} if hub.token else {}
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S, sock_connect=3)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.get(hub.endpoint + path, headers=headers) as response,
        ):
            if response.status != 200:
                raise _refused(hub, model, response.status)
            return await _read(response, hub)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        why = str(error) or type(error).__name__
        raise HubFailed(
            f"the hub at {hub.endpoint} does not answer: {why}", "check HF_ENDPOINT and the network"
        ) from None


async def _read(response: aiohttp.ClientResponse, hub: HubSettings) -> dict[str, Any]:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > _MAX_BYTES:
            raise HubFailed(f"the hub at {hub.endpoint} answered with more than {_MAX_BYTES} bytes")

    try:
        value = json.loads(body)
    except ValueError:
        value = None

    if not isinstance(value, dict):
        raise HubFailed(f"the hub at {hub.endpoint} did not answer in JSON", "check HF_ENDPOINT")

    return value


def _refused(hub: HubSettings, model: str, status: int) -> HubFailed:
    if status in (401, 403):
        return HubFailed(
            f"the hub at {hub.endpoint} does not show {model!r} ({status}): if it exists, it "
            "requires a token",
            "accept its terms on the hub, and set HF_TOKEN",
        )

    if status == 404:
        return HubFailed(
            f"the hub at {hub.endpoint} has no {model!r}, or the model lacks this file",
            "check the id",
        )

    return HubFailed(
        f"the hub at {hub.endpoint} answered {status} about {model!r}", "try again later"
    )
