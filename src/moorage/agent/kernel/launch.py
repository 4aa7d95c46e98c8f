"""From a kernel's spec to what its runtime is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from moorage.agent.engines.base import (
    Engine,
    Invocation,
    Site,
    contained_environment,
    environment,
    fill,
    is_path,
    visible_devices,
)
from moorage.agent.kernel import cluster as clustering
from moorage.agent.runtimes.base import WORKSPACE, Launch
from moorage.common.model import service_ports
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.service_ports import AppPort

# A container has an address of its own, and the node reaches it by publishing its port.
_ANY_ADDRESS = "0.0.0.0"
# Where a container of a cluster finds its keys.
_SSH = "/etc/moorage/ssh"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kernel is to run. ``base``: the agent's own environment. ``contained``: neither that, nor the
    node's address, programs and directories mean anything to it. ``workspace``: its session's directory of
    the node, "" for none."""

    contained: bool
    host: str
    site: Site
    work_dir: str
    base: Mapping[str, str]
    workspace: str = ""


def invocation(
    engine: Engine, spec: KernelSpec, port: int, place: Place, given: tuple[AppPort, ...] = ()
) -> Invocation:
    """How its main program is called, with the service ports that it was ``given``."""
    if place.contained:
        cores = max(1, spec.slots.get("cpu", 0) // 1000)
        call = engine.launch(spec, host=_ANY_ADDRESS, port=port, site=Site(cores=cores))
    else:
        call = engine.launch(spec, host=place.host, port=port, site=place.site)
    if not given:
        return call
    told = service_ports.environment(spec.session_id, given)
    words = service_ports.placeholders(spec.session_id, given)
    return replace(call, argv=tuple(fill(word, words) for word in call.argv), env=call.env | told)


def launch(
    spec: KernelSpec, call: Invocation, port: int, place: Place, given: tuple[AppPort, ...] = ()
) -> Launch:
    told = _alone(spec, call, port, place, given)
    cluster = spec.cluster
    if cluster is None:
        return told
    folder = _SSH if place.contained else f"{place.work_dir}/.ssh"
    return replace(
        told,
        env=told.env | clustering.facts(cluster, place.contained, folder),
        files=clustering.ssh_files(cluster, place.contained, folder),
        hostname=cluster.hostname,
        network=cluster.group if clustering.private(cluster, place.contained) else "",
        hosts={peer.hostname: peer.address for peer in cluster.members},
    )


def _alone(spec: KernelSpec, call: Invocation, port: int, place: Place, given: tuple[AppPort, ...]) -> Launch:
    if spec.cluster is not None:
        # Before what its user sets, so that he may set it otherwise.
        more = clustering.defaults(spec.cluster, place.contained)
        call = replace(call, defaults=call.defaults | more)
    if spec.workspace:
        told = WORKSPACE if place.contained else place.work_dir
        call = replace(call, env=call.env | {"MOORAGE_WORKSPACE": told})
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
        image=spec.image or (place.site.vllm_image if spec.engine == "vllm" else ""),
        slots=spec.slots,
        devices=tuple(filter(None, visible_devices(spec).split(","))),
        paths=(spec.model,) if is_path(spec.model) else (),
        apps=given,
        model_cache=spec.engine == "vllm",
        user=spec.container_user,
        workspace=place.workspace,
    )
