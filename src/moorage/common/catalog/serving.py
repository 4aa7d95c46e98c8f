"""Endpoint specifications for models of the catalogue. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from moorage.common.catalog import sizing
from moorage.common.catalog.entries import CatalogModel, endpoint_name
from moorage.common.catalog.fitting import Choice, GpuNode, Wanted, choose, sufficient
from moorage.common.catalog.memory import BLOCK, kv_cache_bytes
from moorage.common.model.errors import Infeasible
from moorage.common.model.spec import EndpointSpec
from moorage.common.views.catalog import CatalogFitView, CatalogModelView, CatalogNodeView

if TYPE_CHECKING:
    from moorage.common.views.resources import AgentView

MIB = 1024**2
# Bytes per second of a slow download. The start timeout of a model from a hub allows for this rate.
DOWNLOAD = 20_000_000


def model_view(model: CatalogModel) -> CatalogModelView:
    architecture = model.architecture
    sizes = model.sizes()
    return CatalogModelView(
        id=model.id,
        engine=model.engine,
        parameters=architecture.parameters,
        weight_bytes=model.weights,
        context=architecture.context,
        dtype=architecture.dtype,
        quantization=architecture.quantization,
        kv_cache_bytes_per_token=kv_cache_bytes(architecture, BLOCK, element=sizes.element)
        // BLOCK,
        fits=list(sufficient(sizes)),
        args=list(model.args),
        needs_token=model.gated,
    )


def fit_view(
    model: CatalogModel, group: str, agents: Sequence[AgentView], *, context: int = 0
) -> CatalogFitView:
    """How a model fits a group's ``agents``, and the endpoint that would serve it. ``context``: the
    tokens that it must hold; 0 means the longest that fits."""
    wanted = Wanted(context=context)
    given: dict[str, Any] = {
        "name": endpoint_name(model.id),
        "engine": model.engine,
        "model": model.id,
        "resource_group": group,
        "replicas": 1,
    }
    option = {"vllm": "--max-model-len", "llamacpp": "--ctx-size"}[model.engine]
    start = given | ({"args": [f"{option}={context}"]} if context else {})
    spec = EndpointSpec.model_validate(start)
    view = CatalogFitView(
        model=model_view(model),
        resource_group=group,
        nodes=[
            _node(model, node, wanted)
            for node in sizing.nodes_of(
                [agent for agent in agents if agent.resource_group == group]
            )
            if node.gpus
        ],
        spec=None,
    )
    try:
        filled = sizing.fill(spec, model, agents)
    except Infeasible as error:
        return view.model_copy(update={"problem": error.message, "next_step": error.next_step})

    if filled is None:
        problem = f"no agent of resource group {group!r} that is connected can run {model.engine}"
        step = "choose another group, or install the engine on an agent"
        return view.model_copy(update={"problem": problem, "next_step": step})

    made = given | {
        "args": [*spec.args, *filled.args],
        "resources": filled.resources | {"mem": _readable(int(filled.resources["mem"]))},
        "start_timeout_s": spec.start_timeout_s + round(model.weights / DOWNLOAD),
    }
    made |= {"env": filled.env} if filled.env else {}
    made |= {"agents": filled.agents} if filled.agents else {}
    return view.model_copy(update={"spec": made})


def _readable(size: int) -> str:
    """At least ``size`` bytes, as a person would write it."""
    mebibytes = math.ceil(size / MIB)
    return f"{mebibytes}MiB" if mebibytes % 1024 else f"{mebibytes // 1024}GiB"


def _node(model: CatalogModel, node: GpuNode, wanted: Wanted) -> CatalogNodeView:
    found = choose(model.sizes(), [node], wanted)
    fits = isinstance(found, Choice)
    return CatalogNodeView(
        agent_id=node.name,
        fits=fits,
        gpus=found.tensor_parallel if isinstance(found, Choice) else 0,
        context=found.context,
    )
