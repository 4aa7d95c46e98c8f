"""Resources and engine arguments for a model, chosen from the agents of a resource group. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moorage.common.catalog.entries import CatalogModel
from moorage.common.catalog.fitting import USEFUL_CONTEXT, Choice, GpuNode, NoFit, Wanted, choose
from moorage.common.catalog.memory import GIB, kv_cache_bytes
from moorage.common.model.errors import Infeasible, InvalidInput
from moorage.common.model.runtimes import traits_of
from moorage.common.model.slots import format_amount
from moorage.common.model.status import AgentStatus

if TYPE_CHECKING:
    from moorage.common.model.spec import EndpointSpec
    from moorage.common.views.resources import AgentView

# Memory that vLLM without a GPU and llama.cpp need in addition to weights and cache (measured).
_CPU_BASE = {"vllm": 3 * GIB, "llamacpp": GIB // 2}
# Host memory that vLLM needs on GPUs, for the server and one process per GPU.
_SERVER_MEM = 4 * GIB
_WORKER_MEM = 4 * GIB
_CONTEXT = {"vllm": "--max-model-len", "llamacpp": "--ctx-size"}
_PARALLEL = ("--tensor-parallel-size", "-tp")


@dataclass(frozen=True, slots=True)
class Filled:
    """Values for the options that the user did not set. ``agents``: the agents that fit the model;
    empty if all do. ``note``: the choice in words."""

    resources: dict[str, str]
    args: list[str]
    note: str
    env: dict[str, str] = field(default_factory=dict)
    agents: list[str] = field(default_factory=list)


def nodes_of(agents: Sequence[AgentView]) -> list[GpuNode]:
    """Nodes with their whole healthy GPUs, used or free."""
    return [
        GpuNode(
            agent.id,
            tuple(
                (offer.model, offer.memory_bytes)
                for offer in agent.offers
                if offer.slot == "cuda.device" and offer.healthy and offer.memory_bytes
            ),
            cores=_offered(agent, "cpu") // 1000,
            mem=_offered(agent, "mem"),
        )
        for agent in agents
    ]


def eligible(
    spec: EndpointSpec, agents: Sequence[AgentView], *, any_engine: bool = False
) -> list[AgentView]:
    """The agents that may run its replicas, regardless of free resources. ``any_engine``: include
    agents without its engine."""
    return [
        agent
        for agent in agents
        if agent.status is AgentStatus.ALIVE
        and agent.resource_group in spec.groups
        and (not spec.agents or agent.id in spec.agents)
        and spec.arch in (None, agent.arch)
        and spec.labels.items() <= agent.labels.items()
        and spec.runtime in agent.runtimes
        and (any_engine or spec.engine in agent.engines or traits_of(spec.runtime).images)
    ]


def fill(spec: EndpointSpec, model: CatalogModel, agents: Sequence[AgentView]) -> Filled | None:
    """Fill in resources and arguments. Returns None if no known agent could run the model, so that
    no estimate is possible. Raises ``Infeasible`` if it fits none of the agents that could run it,
    and ``InvalidInput`` for arguments that are not numbers."""
    able = eligible(spec, agents)
    nodes = nodes_of(able)
    wanted = _wanted(spec)
    with_gpus = [node for node in nodes if node.gpus]
    if with_gpus and spec.engine == "vllm":
        found = choose(model.sizes(_option(spec, "--kv-cache-dtype")), with_gpus, wanted)
        if isinstance(found, Choice):
            return _on_gpus(spec, model, found, nodes)

        raise _refusal(spec, model, found, with_gpus)

    return _on_cpus(spec, model, nodes, wanted) if nodes else None


def _on_gpus(
    spec: EndpointSpec, model: CatalogModel, choice: Choice, nodes: Sequence[GpuNode]
) -> Filled:
    gpus = choice.tensor_parallel
    taking = [node for node in nodes if node.name in choice.nodes]
    cores = min(2 + gpus, *(node.cores or 2 + gpus for node in taking))
    mem = min(_SERVER_MEM + gpus * _WORKER_MEM, *(node.mem or math.inf for node in taking))
    args = _missing(spec, model.args)
    if choice.context < model.architecture.context and not _option(spec, _CONTEXT["vllm"]):
        args.append(f"--max-model-len={choice.context}")
    if choice.dtype and not _option(spec, "--dtype"):
        args.append(f"--dtype={choice.dtype}")

    used = choice.weights + choice.kv_cache + choice.working
    return Filled(
        {"cpu": str(max(1, cores)), "mem": str(int(mem)), "cuda.device": str(gpus)},
        args,
        f"{gpus} GPU{'s' if gpus > 1 else ''} with {size(used)} each, {choice.context} tokens of "
        "context",
        agents=[] if len(taking) == len(nodes) else sorted(choice.nodes),
    )


def _on_cpus(
    spec: EndpointSpec, model: CatalogModel, nodes: Sequence[GpuNode], wanted: Wanted
) -> Filled:
    context = wanted.context or min(model.architecture.context, USEFUL_CONTEXT)
    cache = kv_cache_bytes(model.architecture, context)

    # vLLM takes whole GiB.
    cache = math.ceil(cache / GIB) * GIB if spec.engine == "vllm" else cache
    needed = model.weights + cache + _CPU_BASE[spec.engine]
    taking = [node for node in nodes if node.mem >= needed]
    if not taking:
        most = max(nodes, key=lambda node: node.mem)
        raise Infeasible(
            f"{model.id} needs {size(needed)} of memory for {context} tokens of context without a "
            f"GPU; the largest node, {most.name}, has {size(most.mem)}",
            next_step=_alternatives(model, ()),
        )

    option = _CONTEXT[spec.engine]
    args = _missing(spec, model.args)
    if not _option(spec, option):
        args.append(f"{option}={context}")

    return Filled(
        {"cpu": "1", "mem": str(needed)},
        args,
        note=f"no GPU, {size(needed)} of memory, {context} tokens of context",
        env={"VLLM_CPU_KVCACHE_SPACE": str(cache // GIB)} if spec.engine == "vllm" else {},
        agents=[] if len(taking) == len(nodes) else sorted(node.name for node in taking),
    )


def _refusal(
    spec: EndpointSpec, model: CatalogModel, found: NoFit, nodes: Sequence[GpuNode]
) -> Infeasible:
    offered = "; ".join(sorted(f"{node.name} has {gpus_text(node)}" for node in nodes)[:5])
    context = _wanted(spec).context or min(model.architecture.context, USEFUL_CONTEXT)
    fewer = f"{_CONTEXT['vllm']}={found.context} here; " if found.context >= 1024 else ""
    return Infeasible(
        f"{model.id} needs {size(found.least)} of GPU memory for {context} tokens of context, and "
        f"no node of resource group {', '.join(spec.groups)} has that much: {offered}",
        next_step=fewer + _alternatives(model, found.needs),
    )


def _alternatives(model: CatalogModel, needs: Sequence[str]) -> str:
    parts = [f"it would fit {' or '.join(needs)}"] if needs else []
    if model.smaller:
        parts.append(f"or serve {model.smaller}")
    parts.append("give --gpus or --resources to try anyway")
    return "; ".join(parts)


def gpus_text(node: GpuNode) -> str:
    """The GPUs of a node, like ``4 x NVIDIA H100 (80GiB)``."""
    kinds = dict.fromkeys(node.gpus)
    return " + ".join(
        f"{node.gpus.count(kind)} x {kind[0] or 'GPU'} ({size(kind[1])})" for kind in kinds
    )


def size(amount: int) -> str:
    return format_amount("mem", amount)


def _wanted(spec: EndpointSpec) -> Wanted:
    return Wanted(
        context=_count(spec, _CONTEXT.get(spec.engine, "")),
        tensor_parallel=_count(spec, *_PARALLEL),
        dtype=_option(spec, "--dtype"),
    )


def _count(spec: EndpointSpec, *names: str) -> int:
    text = _option(spec, *names)
    if text and not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise InvalidInput(
            f"--arg {names[0]}={text!r} is not a number of 1 or more",
            next_step="write a plain number, or give --gpus to skip the estimate",
        )
    return int(text or 0)


def _option(spec: EndpointSpec, *names: str) -> str:
    """The value of an engine option in ``args``, given as ``--name=value`` or as two words; empty
    if it is missing."""
    for index, word in enumerate(spec.args):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in names:
            return value if equals else (spec.args[index + 1] if index + 1 < len(spec.args) else "")
    return ""


def _missing(spec: EndpointSpec, args: Sequence[str]) -> list[str]:
    given = {word.partition("=")[0].replace("_", "-") for word in spec.args}
    return [arg for arg in args if arg.partition("=")[0] not in given]


def _offered(agent: AgentView, slot: str) -> int:
    return sum(offer.capacity for offer in agent.offers if offer.slot == slot)
