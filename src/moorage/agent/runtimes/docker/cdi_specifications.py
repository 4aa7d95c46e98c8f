"""Container Device Interface (CDI) specifications, with the NVIDIA GPUs that an engine knows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog
import yaml

from moorage.agent.runtimes.docker.cdi import KIND, CdiDevices

log = structlog.get_logger("moorage.agent.docker")


def known_devices(info: Mapping[str, Any]) -> CdiDevices:
    """The NVIDIA GPUs that an engine knows through CDI. ``info``: as in ``docker info``. Engines
    since version 28.2 list the GPUs.

    For earlier ones, they are in the specifications in the directories that the engine reads. This
    reads files: call it in a thread. An unreadable file is treated as having no GPUs.
    """
    described: dict[str, frozenset[str] | None] = {}
    for folder in info.get("CDISpecDirs") or ():
        for file in sorted(Path(folder).glob("*")):
            if file.suffix in (".json", ".yaml"):
                described.update(_devices_in(file))

    if info.get("DiscoveredDevices") is None:
        return described

    prefix = f"{KIND}="
    ids = [
        str(device.get("ID"))
        for device in info["DiscoveredDevices"]
        if device.get("Source") == "cdi"
    ]
    names = [name.removeprefix(prefix) for name in ids if name.startswith(prefix)]
    return {name: described.get(name) for name in names}


def _devices_in(file: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """The NVIDIA GPUs in a specification, each with its device nodes."""
    try:
        text = file.read_text()
        content = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
        if content["kind"] != KIND:
            return

        for device in content["devices"]:
            nodes = device.get("containerEdits", {}).get("deviceNodes", ())
            yield str(device["name"]), frozenset(node["path"] for node in nodes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        log.warning("a CDI specification cannot be read", file=str(file), error=repr(error))
