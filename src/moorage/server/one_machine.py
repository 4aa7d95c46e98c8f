"""Defaults for a machine that runs everything: ``moorage up`` and ``moorage demo``."""

from __future__ import annotations

from dataclasses import replace

from moorage.common.config.loader import LoadedSettings

# A model requests a CPU and spends most of its time waiting. Each keeps its limit of one CPU, and
# busy models share the CPUs.
INVENTORY = "auto+cpu-overcommit:4"


def with_shared_cpus(loaded: LoadedSettings) -> LoadedSettings:
    """Without a GPU, offer each CPU four times, unless ``agent.inventory`` is set."""
    if loaded.origins["agent.inventory"] != "default":
        return loaded
    agent = loaded.settings.agent.model_copy(update={"inventory": INVENTORY})
    return replace(loaded, settings=loaded.settings.model_copy(update={"agent": agent}))
