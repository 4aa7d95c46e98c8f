"""The images of this node's engine: which are here, which are pulled, and by whom they were."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import structlog

from moorage.agent.runtimes.base import CreateFailed, OnProgress
from moorage.agent.runtimes.docker.container_config import ContainerRules, meaning
from moorage.agent.runtimes.docker.disk import PulledImages
from moorage.agent.runtimes.docker.engine import Engine
from moorage.agent.runtimes.docker.errors import NoSuchObject, RequestRefused
from moorage.common.model.errors import InvalidInput
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import IMAGE_LABEL, ServicePort, parse_label

log = structlog.get_logger("moorage.agent.docker")


class ImageStore:
    def __init__(self, engine: Engine, rules: ContainerRules, pulled: PulledImages) -> None:
        self._engine, self._rules, self._pulled = engine, rules, pulled
        self._here: dict[str, tuple[ServicePort, ...]] = {}  # with what they offer
        self._pulling: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._told: dict[str, set[OnProgress]] = defaultdict(set)

    async def have(self, image: str, tell: OnProgress) -> tuple[ServicePort, ...]:
        """Pull it as the node's policy says; all who want it meanwhile are told how far it is. Returns the
        service ports that its label declares. Raises ``CreateFailed``, and what the engine raises."""
        self._pulled.note(image)
        if image in self._here and self._rules.pull != "always":
            # If it was removed meanwhile, the engine says so when a container is to be made of it.
            return self._here[image]
        listening = self._told[image]
        listening.add(tell)
        try:
            async with self._pulling[image]:
                self._here[image] = _offered(image, await self._have(image))
                return self._here[image]
        finally:
            listening.discard(tell)

    def forget(self, image: str) -> None:
        """It turned out not to be here any more."""
        self._here.pop(image, None)

    async def _have(self, image: str) -> Mapping[str, str]:
        """Its labels."""
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
        log.info("pulling an image", image=image)
        try:
            await self._engine.pull(image, lambda text: self._tell(image, text))
        except RequestRefused as error:
            reason, next_step = meaning(str(error))
            if reason is not Reason.DISK_FULL:
                reason = Reason.IMAGE_MISSING
                next_step = "check its name, its registry, and `docker login` of the agent's user"
            raise CreateFailed(
                f"image {image!r} could not be pulled: {error}",
                reason=reason,
                clean=True,
                next_step=next_step,
            ) from None
        found = await self._engine.call(lambda api: api.inspect_image(image))
        self._pulled.note(image, str(found["Id"]))
        return _labels(found)

    def _tell(self, image: str, text: str) -> None:
        for tell in tuple(self._told[image]):
            tell(text)


def _labels(found: Mapping[str, Any]) -> Mapping[str, str]:
    return (found["Config"] or {}).get("Labels") or {}


def _offered(image: str, labels: Mapping[str, str]) -> tuple[ServicePort, ...]:
    try:
        return parse_label(labels.get(IMAGE_LABEL, ""))
    except InvalidInput as error:
        # Who only uses an image cannot mend it; his session runs without what it says.
        log.warning("an image declares service ports that cannot be", image=image, why=str(error))
        return ()
