"""From a kernel's spec to what its runtime is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.agent.engines.base import (
    Engine,
    Invocation,
    Site,
    contained_environment,
    environment,
    is_path,
    visible_devices,
)
from fairlead.agent.runtimes.base import Launch
from fairlead.common.spec import KernelSpec

# A container has an address of its own, and the node reaches it by publishing its port.
_ANY_ADDRESS = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kernel is to run. ``base``: the agent's own environment. ``contained``: neither that, nor the
    node's address, programs and directories mean anything to it."""

    contained: bool
    host: str
    site: Site
    work_dir: str
    base: Mapping[str, str]


def invocation(engine: Engine, spec: KernelSpec, port: int, place: Place) -> Invocation:
    """How its main program is called."""
    if place.contained:
        cores = max(1, spec.slots.get("cpu", 0) // 1000)
        return engine.launch(spec, host=_ANY_ADDRESS, port=port, site=Site(cores=cores))
    return engine.launch(spec, host=place.host, port=port, site=place.site)


def launch(spec: KernelSpec, call: Invocation, port: int, place: Place) -> Launch:
    if place.contained:
        env = contained_environment(spec, call)
    else:
        env = environment(place.base, spec, call, work_dir=place.work_dir, site=place.site)
    return Launch(
        spec.kernel_id,
        call.argv,
        env,
        port,
        spec.stop_grace_s,
        image=spec.image,
        slots=spec.slots,
        devices=tuple(filter(None, visible_devices(spec).split(","))),
        paths=(spec.model,) if is_path(spec.model) else (),
    )
