"""Progress of an image pull: accumulates the engine's messages per layer and limits the rate of
updates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_PENDING = frozenset({"Pulling fs layer", "Waiting", "Retrying"})
_DOWNLOADED = frozenset({"Verifying Checksum", "Download complete"})
_COMPLETE = frozenset({"Pull complete", "Already exists"})
_MB = 1_000_000
_INTERVAL_S = 1.0


@dataclass(slots=True)
class _Layer:
    total: int = 0  # compressed bytes; 0 if unknown, or if there is nothing to download
    downloaded: int = 0
    complete: bool = False


class PullProgress:
    """The progress of a pull, thread-safe for one writer and one reader. ``image``: as given by the
    user. The engine reports a layer's size when its download starts."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._layers: dict[str, _Layer] = {}

    def feed(self, message: Mapping[str, Any]) -> None:
        """Process one message from the engine's stream. Messages that are not about a layer are
        ignored."""
        name = str(message.get("id", ""))
        status = str(message.get("status", ""))
        detail = message.get("progressDetail") or {}

        if (
            status not in _PENDING | _DOWNLOADED | _COMPLETE | {"Downloading", "Extracting"}
            or not name
        ):
            return

        layer = self._layers.setdefault(name, _Layer())
        if status == "Downloading":
            layer.total = max(int(detail.get("total") or 0), 0)
            layer.downloaded = max(int(detail.get("current") or 0), 0)
        elif status in _DOWNLOADED or status == "Extracting":
            layer.downloaded = layer.total
        elif status in _COMPLETE:
            layer.downloaded = layer.total
            layer.complete = True

    def text(self) -> str:
        """The progress as text, like ``pulling repo/image:1: 412 of 980 MB, 3 of 7 layers``."""
        layers = tuple(self._layers.values())
        downloaded = sum(layer.downloaded for layer in layers)
        total = sum(layer.total for layer in layers)
        complete = sum(layer.complete for layer in layers)
        parts = []
        if 0 < downloaded < total:
            parts.append(f"{_megabytes(downloaded)} of {_megabytes(total)} MB")
        if layers:
            parts.append(f"{complete} of {len(layers)} layers")

        verb = (
            "unpacking" if total and downloaded >= total and complete < len(layers) else "pulling"
        )
        return f"{verb} {self._image}: {', '.join(parts)}" if parts else f"{verb} {self._image}"


class ThrottledCallback:
    """A throttle that calls ``callback`` in ``loop`` after each ``trigger``, at most once a second.
    ``trigger`` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._called_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._triggered = False
        self._closed = False

    def trigger(self) -> None:
        if not self._triggered and not self._closed:
            self._triggered = True  # the call covers further triggers that precede it
            self._loop.call_soon_threadsafe(self._schedule)

    def close(self) -> None:
        """Close the throttle. Must be called in the loop."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        if not self._closed:
            self._timer = self._loop.call_at(self._called_at + _INTERVAL_S, self._call)

    def _call(self) -> None:
        self._called_at = self._loop.time()
        self._triggered = False
        self._callback()


def _megabytes(size: int) -> str:
    return f"{size / _MB:.1f}" if size < 10 * _MB else f"{size / _MB:.0f}"
