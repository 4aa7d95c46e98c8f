"""Image registries that the engine may contact for a user of the platform.

An image's name contains the address of its registry, and the engine connects to it from the node.
The address must therefore pass the guard for URLs from users, unless a pattern in
``agent.docker_images`` names the registry.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase

from moorage.agent.runtimes.base import CreateFailed
from moorage.agent.runtimes.docker.container_config import full_name
from moorage.common.model.errors import InvalidInput
from moorage.common.model.reasons import Reason

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""A host's addresses. Raises ``OSError``."""
_DEFAULT = "docker.io"


async def system_resolve(host: str) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[4][0]) for address in found))


async def check_registry(
    image: str, patterns: Sequence[str], resolve: Resolve = system_resolve
) -> None:
    """Check the registry of ``image``. Raises ``CreateFailed`` if it has an address that is not
    public. ``patterns``: ``agent.docker_images``. A host that cannot be resolved here is left to
    the engine, which may reach it through a mirror or a proxy."""
    # Imported here because most agents pull few images or none.
    from moorage.common.model.destinations import DestinationPolicy, decide, parse

    name = full_name(image)
    registry = name.partition("/")[0]
    if registry == _DEFAULT or any(
        pattern.partition("/")[0] == registry and fnmatchcase(name, pattern) for pattern in patterns
    ):
        return

    try:
        host = parse(f"https://{registry}/", DestinationPolicy()).host or ""
        decide(host, await resolve(host), DestinationPolicy())
    except OSError:
        pass
    except InvalidInput as error:
        raise CreateFailed(
            f"image {image!r} may not be pulled: {error.message}",
            reason=Reason.IMAGE_NOT_ALLOWED,
            clean=True,
            next_step="use a public registry, or have an administrator name this one in "
            "agent.docker_images "
            f"on that node: {registry}/*",
        ) from None
