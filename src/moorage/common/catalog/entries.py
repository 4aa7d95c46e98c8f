"""Entries of the catalogue: proven models, from the data file ``models.toml``."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.common.catalog.architecture import Architecture, read_config
from moorage.common.catalog.memory import Sizes, element_bytes


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """Model that can be served. ``id``: its id on the hub, or a path. ``source``: where its numbers
    come from. ``weights``: size in bytes of the files that the engine loads. ``args``: arguments
    that its engine requires. ``gated``: whether its hub requires a token. ``smaller``: the entry to
    use if it does not fit."""

    id: str
    engine: str
    source: str
    architecture: Architecture
    weights: int
    args: tuple[str, ...] = ()
    gated: bool = False
    smaller: str = ""
    file: str = ""
    note: str = ""

    def sizes(self, dtype: str = "") -> Sizes:
        """Sizes of the model. ``dtype``: the KV cache's dtype; empty means the model's own."""
        return Sizes(
            self.architecture, self.weights, element_bytes(dtype or self.architecture.dtype)
        )


def load_models() -> tuple[CatalogModel, ...]:
    """All entries in the order of the file, which is by family and size."""
    text = (Path(__file__).parent / "models.toml").read_text(encoding="utf-8")
    return tuple(_entry(fields) for fields in tomllib.loads(text)["model"])


def find_model(model_id: str) -> CatalogModel | None:
    return next((model for model in load_models() if model.id.lower() == model_id.lower()), None)


def endpoint_name(model: str) -> str:
    """A valid endpoint name derived from the model's base name; empty if nothing valid remains."""
    base = re.sub(
        r"([.-]gguf)?(:[^:]*)?$", "", model.rstrip("/").rsplit("/", 1)[-1], flags=re.IGNORECASE
    )
    return re.sub(r"[^A-Za-z0-9._:-]+", "-", base)[:128].strip("._:-")


def _entry(fields: dict[str, Any]) -> CatalogModel:
    architecture = read_config(fields["config"])
    return CatalogModel(
        id=fields["id"],
        engine=fields.get("engine", "vllm"),
        source="catalogue",
        architecture=architecture,
        weights=int(fields.get("weights", 0)) or architecture.weight_bytes,
        args=tuple(fields.get("args", ())),
        gated=bool(fields.get("gated", False)),
        smaller=fields.get("smaller", ""),
        file=fields.get("file", ""),
        note=fields.get("note", ""),
    )
