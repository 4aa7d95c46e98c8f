"""How far a pull has come, from what the engine says of each layer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_WAITS = frozenset({"Pulling fs layer", "Waiting", "Retrying"})
_LOADED = frozenset({"Verifying Checksum", "Download complete"})
_HERE = frozenset({"Pull complete", "Already exists"})
_MB = 1_000_000


@dataclass(slots=True)
class _Layer:
    total: int = 0  # bytes as they are sent; 0: not known, or nothing to load
    loaded: int = 0
    here: bool = False


class PullProgress:
    """May be fed in one thread and read in another. ``image`` as it was asked for. The engine tells a layer's
    size when it begins to load it."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._layers: dict[str, _Layer] = {}

    def feed(self, step: Mapping[str, Any]) -> None:
        """One line of the engine's stream; what is not about a layer is passed over."""
        name, status = str(step.get("id", "")), str(step.get("status", ""))
        told = step.get("progressDetail") or {}
        if status not in _WAITS | _LOADED | _HERE | {"Downloading", "Extracting"} or not name:
            return
        layer = self._layers.setdefault(name, _Layer())
        if status == "Downloading":
            layer.total = max(int(told.get("total") or 0), 0)
            layer.loaded = max(int(told.get("current") or 0), 0)
        elif status in _LOADED or status == "Extracting":
            layer.loaded = layer.total
        elif status in _HERE:
            layer.loaded, layer.here = layer.total, True

    def text(self) -> str:
        """Like ``pulling repo/image:1: 412 of 980 MB, 3 of 7 layers``."""
        layers = tuple(self._layers.values())
        loaded, total = sum(one.loaded for one in layers), sum(one.total for one in layers)
        here = sum(one.here for one in layers)
        parts = []
        if 0 < loaded < total:
            parts.append(f"{_megabytes(loaded)} of {_megabytes(total)} MB")
        if layers:
            parts.append(f"{here} of {len(layers)} layers")
        word = "unpacking" if total and loaded >= total and here < len(layers) else "pulling"
        return f"{word} {self._image}: {', '.join(parts)}" if parts else f"{word} {self._image}"


def _megabytes(size: int) -> str:
    return f"{size / _MB:.1f}" if size < 10 * _MB else f"{size / _MB:.0f}"
