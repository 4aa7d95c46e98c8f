"""Checks a launch against the node's rules, before the engine is involved."""

from __future__ import annotations

import os
import socket

from moorage.agent.runtimes.base import CreateFailed, Launch
from moorage.agent.runtimes.docker.container_config import (
    ContainerRules,
    is_image_allowed,
    is_outside,
)
from moorage.common.model.reasons import Reason


def validate(launch: Launch, rules: ContainerRules, address: str) -> str:
    """Validate a launch. Returns the IP address that ``address`` resolves to, on which ports are
    published. Blocks. Raises ``CreateFailed``."""
    if not is_image_allowed(launch.image, rules.images):
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

        if is_outside(os.path.realpath(path), roots):
            allowed = ", ".join(rules.mounts) or "none"
            raise CreateFailed(
                f"containers of this node have no access to {path}",
                reason=Reason.MOUNT_NOT_ALLOWED,
                clean=True,
                next_step=f"agent.docker_mounts there allows: {allowed}",
            )

    try:
        return str(socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise CreateFailed(f"agent.address = {address!r}: {error}", clean=True) from None
