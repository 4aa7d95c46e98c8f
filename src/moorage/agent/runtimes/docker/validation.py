"""What is refused before the engine is asked, and what its own refusals mean."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from moorage.agent.runtimes.base import CreateFailed, Launch, RuntimeFailed
from moorage.agent.runtimes.docker.container_config import ContainerRules, image_allowed, meaning, outside
from moorage.agent.runtimes.docker.disk import DiskFull
from moorage.agent.runtimes.docker.errors import EngineUnavailable, RequestRefused
from moorage.common.model.reasons import Reason


def check(launch: Launch, rules: ContainerRules, address: str) -> str:
    """What can be known before the engine is asked; the IP on which its port is published."""
    if not image_allowed(launch.image, rules.images):
        raise CreateFailed(
            f"image {launch.image!r} is not allowed on this node",
            reason=Reason.IMAGE_NOT_ALLOWED,
            clean=True,
            next_step=f"agent.docker_images there allows: {', '.join(rules.images)}",
        )
    roots = tuple(os.path.realpath(root) for root in rules.mounts)
    for path in launch.paths:
        if not os.path.isabs(path) or not os.path.exists(path):
            raise CreateFailed(
                f"there is no {path} on this node; give a full path",
                reason=Reason.MODEL_MISSING,
                clean=True,
            )
        if outside(os.path.realpath(path), roots):
            allowed = ", ".join(rules.mounts) or "none"
            raise CreateFailed(
                f"containers of this node may not see {path}",
                reason=Reason.MOUNT_NOT_ALLOWED,
                clean=True,
                next_step=f"agent.docker_mounts there allows: {allowed}",
            )
    try:
        return str(socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise CreateFailed(f"agent.address = {address!r}: {error}", clean=True) from None


@contextmanager
def as_create_failed() -> Iterator[None]:
    """Turns the engine's errors into ``CreateFailed``."""
    try:
        yield
    except RequestRefused as error:
        reason, next_step = meaning(str(error))
        raise CreateFailed(str(error), reason=reason, next_step=next_step) from None
    except DiskFull as error:
        raise CreateFailed(
            error.message, reason=Reason.DISK_FULL, clean=True, next_step=error.next_step
        ) from None
    except EngineUnavailable as error:
        reason = Reason.RUNTIME_UNAVAILABLE
        raise CreateFailed(
            error.message, reason=reason, clean=error.unsent, next_step=error.next_step
        ) from None
    except RuntimeFailed as error:  # there is no SDK to ask with
        raise CreateFailed(error.message, clean=True, next_step=error.next_step) from None
