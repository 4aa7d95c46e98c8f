"""Images in the node's engine, pulled according to ``agent.docker_pull``, and their labels."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import structlog

from moorage.agent.runtimes.base import CreateFailed, OnProgress
from moorage.agent.runtimes.docker.container_config import ContainerRules
from moorage.agent.runtimes.docker.engine import DockerEngine
from moorage.agent.runtimes.docker.errors import NoSuchObject, RequestRefused, explain
from moorage.agent.runtimes.docker.image_gc import PulledImages
from moorage.agent.runtimes.docker.registries import check_registry
from moorage.common.model.errors import InvalidInput
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import IMAGE_LABEL, ServicePort, parse_label

log = structlog.get_logger("moorage.agent.docker")


class ImageStore:
    """An image store. It runs one pull of an image at a time, for all kernels that wait for it."""

    def __init__(self, engine: DockerEngine, rules: ContainerRules, pulled: PulledImages) -> None:
        self._engine = engine
        self._rules = rules
        self._pulled = pulled
        # for the images known to be present
        self._service_ports: dict[str, tuple[ServicePort, ...]] = {}
        self._pulling: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._listeners: dict[str, set[OnProgress]] = defaultdict(set)

    async def ensure(
        self, image: str, on_progress: OnProgress, *, guarded: bool = False
    ) -> tuple[ServicePort, ...]:
        """Make the image available, and return the service ports that its label declares.
        ``on_progress`` also follows a pull started by another kernel. ``guarded``: registries are
        restricted. Raises ``CreateFailed`` and engine errors."""
        self._pulled.touch(image)
        if image in self._service_ports and self._rules.pull != "always":
            # If the image has been removed since, creating the container fails and calls
            # ``forget``.
            return self._service_ports[image]

        listeners = self._listeners[image]
        listeners.add(on_progress)
        try:
            async with self._pulling[image]:
                self._service_ports[image] = _service_ports(
                    image, await self._ensure(image, guarded)
                )
                return self._service_ports[image]
        finally:
            listeners.discard(on_progress)

    def forget(self, image: str) -> None:
        """Forget an image that was found to be missing."""
        self._service_ports.pop(image, None)

    async def _ensure(self, image: str, guarded: bool) -> Mapping[str, str]:
        """Ensure that the image is present, and return its labels."""
        try:
            if self._rules.pull != "always":
                return _labels(await self._engine.call(lambda api: api.inspect_image(image)))
        except NoSuchObject:
            if self._rules.pull == "never":
                raise CreateFailed(
                    f"image {image!r} is not on this node, and agent.docker_pull = never",
                    reason=Reason.IMAGE_MISSING,
                    clean=True,
                    next_step="pull it there",
                ) from None

        if guarded:
            await check_registry(image, self._rules.images)

        log.info("pulling an image", image=image)
        try:
            await self._engine.pull(image, lambda text: self._report(image, text))
        except RequestRefused as error:
            reason, next_step = explain(str(error))
            if reason is not Reason.DISK_FULL:
                reason = Reason.IMAGE_MISSING
                next_step = "check its name, its registry, and `docker login` of the agent's user"

            raise CreateFailed(
                f"image {image!r} could not be pulled: {error}",
                reason=reason,
                clean=True,
                next_step=next_step,
            ) from None

        details = await self._engine.call(lambda api: api.inspect_image(image))
        self._pulled.touch(image, str(details["Id"]))
        return _labels(details)

    def _report(self, image: str, text: str) -> None:
        for on_progress in tuple(self._listeners[image]):
            on_progress(text)


def _labels(details: Mapping[str, Any]) -> Mapping[str, str]:
    return (details["Config"] or {}).get("Labels") or {}


def _service_ports(image: str, labels: Mapping[str, str]) -> tuple[ServicePort, ...]:
    try:
        return parse_label(labels.get(IMAGE_LABEL, ""))
    except InvalidInput as error:
        # An image's user cannot correct its label, so the session runs without the service ports.
        log.warning("an image declares invalid service ports", image=image, reason=str(error))
        return ()
