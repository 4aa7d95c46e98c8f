"""Facts about a model to serve, from the catalogue, a directory, the hub's cache, or the hub."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moorage.common.catalog import CatalogModel, find_model, read_config
from moorage.common.catalog.architecture import UnknownArchitecture
from moorage.common.hub import (
    HubSettings,
    cached_snapshot,
    fetch_config,
    is_hub_id,
    list_files,
    weight_files,
)
from moorage.common.hub.selection import gguf_files, is_gguf_id, split_id
from moorage.common.model.errors import InvalidInput


async def look_up(model: str, env: Mapping[str, str] | None = None) -> CatalogModel:
    """Look up a model. Raises ``InvalidInput`` if its numbers cannot be read, and ``HubFailed``."""
    name, selector = split_id(model)
    known = find_model(name)
    if known is not None and (not selector or gguf_files([known.file], selector)):
        return known

    if is_gguf_id(model):
        raise InvalidInput(
            f"{model} is not in the catalogue, which is the only source for the memory of GGUF "
            "models",
            next_step="give --resources mem=SIZE, the size of the file and its cache",
        )

    hub = HubSettings.from_environment(os.environ if env is None else env)
    if (here := _find_here(model, hub)) is not None:
        return here

    return _described(
        model, await fetch_config(hub, model), (await list_files(hub, model)).sizes, "hub"
    )


def _find_here(model: str, hub: HubSettings) -> CatalogModel | None:
    path = Path(model).expanduser()
    if path.is_dir():
        return _from_directory(model, path, "directory")

    if not is_hub_id(model):
        raise InvalidInput(
            f"{model!r} is neither a directory here nor an id like OWNER/NAME",
            next_step="`moorage models` lists well-tried models",
        )

    snapshot = cached_snapshot(hub.cache, model)
    if snapshot is not None and (snapshot / "config.json").is_file():
        return _from_directory(model, snapshot, "cache")

    return None


def _from_directory(model: str, folder: Path, source: str) -> CatalogModel:
    try:
        config = json.loads((folder / "config.json").read_bytes())
        sizes = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(
            f"the config.json of {model} cannot be read: {why}",
            next_step="name a model's directory",
        ) from None

    return _described(model, config, sizes, source)


def _described(model: str, config: Any, sizes: Mapping[str, int], source: str) -> CatalogModel:
    try:
        if not isinstance(config, dict):
            raise UnknownArchitecture("its config.json is not an object")
        architecture = read_config(config)
    except UnknownArchitecture as error:
        raise InvalidInput(
            f"the memory of {model} cannot be estimated: {error}",
            next_step="give --gpus and --resources",
        ) from None

    weights = sum(sizes[name] for name in weight_files(sizes))
    return CatalogModel(
        model,
        "vllm",
        source=source,
        architecture=architecture,
        weights=weights or architecture.weight_bytes,
    )
