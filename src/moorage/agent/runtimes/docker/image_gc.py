"""Image garbage collection and disk pressure, on the disk with the engine's data directory.

Above a high watermark, unused images are removed, the least recently used first, until disk usage
is below a low watermark. Below a minimum of free space, no new containers start.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import structlog

from moorage.agent.runtimes.docker.engine import DockerEngine
from moorage.agent.runtimes.docker.errors import DiskFull, NoSuchObject, RequestRefused
from moorage.common.aio.clock import Clock

log = structlog.get_logger("moorage.agent.docker")
_REMOVE_TIMEOUT_S = 120.0
# Younger images are kept, because between ``prepare`` and ``create`` no container protects a new
# kernel's image.
MIN_AGE_S = 600.0


@dataclass(frozen=True, slots=True)
class ImageGcRules:
    """The collection rules. ``high``, ``low``: watermarks as percentages of the disk. ``owners``:
    whether to collect only images pulled by Moorage, or any. ``min_free``: free bytes below which
    no new container starts."""

    mode: Literal["on", "dry-run", "off"] = "on"
    high: int = 85
    low: int = 75
    owners: Literal["pulled", "any"] = "pulled"
    min_free: int = 0


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk's usage. ``free``: bytes that can still be written."""

    total: int
    free: int

    @property
    def used_percent(self) -> float:
        return 100 * (1 - self.free / self.total) if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Image:
    """An image. ``used_at``: unix seconds, 0 if unknown. ``pulled``: Moorage has pulled it."""

    id: str
    names: tuple[str, ...] = ()
    size: int = 0
    used_at: float = 0.0
    pulled: bool = False


def is_above_high_watermark(disk: Disk, rules: ImageGcRules) -> bool:
    return rules.mode != "off" and disk.used_percent >= rules.high


def is_below_low_watermark(disk: Disk, rules: ImageGcRules) -> bool:
    return disk.used_percent < rules.low


def gc_candidates(
    images: Sequence[Image], in_use: Collection[str], rules: ImageGcRules, now: float
) -> tuple[Image, ...]:
    """Images that may be removed, the least recently used first and, among equals, the largest
    first. ``in_use``: the image ids of all containers in any state, including containers that are
    not ours. ``now`` is in unix seconds."""
    candidates = [
        image
        for image in images
        if image.id not in in_use
        and (image.pulled or rules.owners == "any")
        and now - image.used_at >= MIN_AGE_S
    ]
    return tuple(sorted(candidates, key=lambda image: (image.used_at, -image.size, image.id)))


class PulledImages:
    """Registry of the images that this agent has pulled, with the time each was last used. It is
    stored in ``path``, so that a restarted agent still has it. All methods except ``touch``
    block."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._used_at: dict[str, float] = {}  # by image id; only pulled images
        self._requested_at: dict[str, float] = {}  # by name
        self._unsaved = False
        try:
            self._used_at = {
                str(key): float(at) for key, at in json.loads(path.read_text()).items()
            }
        except FileNotFoundError:
            pass
        except (ValueError, AttributeError, TypeError) as error:
            log.warning(
                "cannot read the list of pulled images; none of them is removed", error=repr(error)
            )

    def touch(self, name: str, image_id: str = "") -> None:
        """Record that an image has just been requested and, if ``image_id`` is given, that it was
        pulled."""
        now = self._clock.now().timestamp()
        self._requested_at[name] = now
        if image_id:
            self._used_at[image_id] = now
            self._unsaved = True

    def image(self, row: dict[str, Any]) -> Image:
        """The image in a row of the engine's image list."""
        names = tuple(
            name
            for name in (*(row["RepoTags"] or ()), *(row["RepoDigests"] or ()))
            if "<none>" not in name
        )
        pulled_at = self._used_at.get(row["Id"])
        used_at = max(pulled_at or 0.0, *(self._requested_at.get(name, 0.0) for name in names), 0.0)
        if pulled_at is not None and used_at > pulled_at:
            self._used_at[row["Id"]] = used_at
            self._unsaved = True

        return Image(
            row["Id"], names, size=int(row["Size"]), used_at=used_at, pulled=pulled_at is not None
        )

    def retain(self, image_ids: set[str]) -> None:
        """Forget all other images and save the changes. Raises ``OSError``."""
        if removed := self._used_at.keys() - image_ids:
            self._used_at = {key: at for key, at in self._used_at.items() if key not in removed}
            self._unsaved = True
        if self._unsaved:
            temporary = self._path.with_name(f"{self._path.name}.tmp")
            temporary.write_text(json.dumps(self._used_at))
            temporary.replace(self._path)
            self._unsaved = False


def read_disk(directory: str) -> Disk:
    """Read a disk's usage. Blocks. Raises ``OSError``."""
    stat = os.statvfs(directory)
    return Disk(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)


def _remove_image(name: str, api: Any) -> None:
    api.remove_image(name)


class ImageGarbageCollector:
    """The collector. ``read_disk`` returns the usage of the disk with a directory; it may raise
    ``OSError``."""

    def __init__(
        self,
        engine: DockerEngine,
        rules: ImageGcRules,
        pulled: PulledImages,
        clock: Clock,
        *,
        read_disk: Callable[[str], Disk] = read_disk,
    ) -> None:
        self._engine = engine
        self._rules = rules
        self.pulled = pulled
        self._clock = clock
        self._read_disk = read_disk
        self._data_dir = ""
        self._last_warning = ""

    async def check_free_space(self) -> None:
        """Check the free space. Raises ``DiskFull`` and, on the first call, engine errors."""
        disk = await self._disk()
        if disk is not None and disk.free < self._rules.min_free:
            raise DiskFull(
                f"{disk.free >> 20} MiB are free in {self._data_dir}; agent.docker_min_free there "
                "is "
                f"{self._rules.min_free >> 20} MiB",
                next_step="free some space in the data directory of Docker on that node",
            )

    async def collect(self) -> None:
        """Remove images if disk usage is above the high watermark. Raises engine errors."""
        disk = await self._disk()
        rows = await self._engine.call(lambda api: api.images())
        images = [self.pulled.image(row) for row in rows]
        # On a full disk, the list cannot be saved, which must not stop the collection.
        with suppress(OSError):
            await asyncio.to_thread(self.pulled.retain, {image.id for image in images})

        if disk is None:
            return
        if not is_above_high_watermark(disk, self._rules):
            self._last_warning = ""
            return

        in_use = await self._engine.call(
            lambda api: [row["ImageID"] for row in api.containers(all=True)]
        )
        candidates = gc_candidates(
            images, frozenset(in_use), self._rules, self._clock.now().timestamp()
        )
        if self._rules.mode == "dry-run":
            self._warn_once(
                "Docker's disk is full; these images would be removed (agent.docker_gc = dry-run)",
                images=[image.names[:1] or image.id for image in candidates],
                percent=round(disk.used_percent),
            )
            return

        for image in candidates:
            if is_below_low_watermark(disk, self._rules):
                return

            await self._remove(image, disk)
            disk = await self._disk() or disk

        if not is_below_low_watermark(disk, self._rules):
            self._warn_once(
                "Docker's disk is full, and no other image may be removed",
                percent=round(disk.used_percent),
                next_step=(
                    "free some space there; agent.docker_gc_images = any allows the removal of all "
                    "images"
                ),
            )

    async def _remove(self, image: Image, disk: Disk) -> None:
        try:
            for name in image.names or (image.id,):
                await self._engine.call(partial(_remove_image, name), _REMOVE_TIMEOUT_S)
        except NoSuchObject:
            pass
        except RequestRefused as error:
            log.info("cannot remove an image", image=image.names or image.id, reason=str(error))
            return

        log.info(
            "removed an image because Docker's disk is full",
            image=image.names or image.id,
            mib=image.size >> 20,
            percent=round(disk.used_percent),
        )

    async def _disk(self) -> Disk | None:
        """The usage of the engine's disk, or None if the agent has no access to the engine's data
        directory."""
        if not self._data_dir:
            self._data_dir = str((await self._engine.call(lambda api: api.info()))["DockerRootDir"])

        try:
            return await asyncio.to_thread(self._read_disk, self._data_dir)
        except OSError as error:
            self._warn_once(
                "cannot read the usage of Docker's disk",
                folder=self._data_dir,
                error=str(error),
                next_step=(
                    "an agent in a container needs that directory, read-only: see deploy/compose"
                ),
            )
            return None

    def _warn_once(self, message: str, **fields: object) -> None:
        """Log a warning unless it repeats the last one."""
        if message != self._last_warning:
            self._last_warning = message
            log.warning(message, **fields)
