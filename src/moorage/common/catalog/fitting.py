"""Choice of GPUs for a model: number, nodes, tensor parallelism, dtype and context. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from moorage.common.catalog import memory
from moorage.common.catalog.architecture import Architecture
from moorage.common.catalog.memory import GIB, Sizes

# If no context is requested, the fewest GPUs that leave room for a context of this length are
# chosen.
USEFUL_CONTEXT = 8192
_PARALLEL = (1, 2, 4, 8, 16)
# GPUs whose compute capability is below 8.0 have no bfloat16 (CUDA C Programming Guide, table of
# features).
_WITHOUT_BFLOAT16 = ("V100", "T4", "P100", "P40", "P4", "TITAN", "RTX 20", "GTX", "QUADRO RTX")
# GPUs to suggest when none here is large enough, by memory.
COMMON_GPUS = (("L4", 24), ("L40S", 48), ("A100 or H100", 80), ("H200", 141), ("B200", 192))


@dataclass(frozen=True, slots=True)
class GpuNode:
    """One agent's healthy GPUs, in use or not, with the kind and memory of each. ``cores`` and
    ``mem`` (in bytes): what the agent offers."""

    name: str
    gpus: tuple[tuple[str, int], ...]
    cores: int = 0
    mem: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The user's request; 0 and "" leave the value open."""

    context: int = 0
    tensor_parallel: int = 0
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """The model fits on ``nodes`` with this tensor parallelism and context. ``dtype``: "" for the
    model's own. Sizes are per GPU, in bytes."""

    nodes: tuple[str, ...]
    tensor_parallel: int
    context: int
    dtype: str
    weights: int
    kv_cache: int
    working: int


@dataclass(frozen=True, slots=True)
class NoFit:
    """The model fits on no node. ``needs``: GPUs on which it would fit, such as ``2 x 80 GiB (A100
    or H100)``. ``least``: bytes that it needs on one GPU at the requested context. ``context``: the
    longest context that fits here, 0 if none does."""

    needs: tuple[str, ...]
    least: int
    context: int = 0


def choose(sizes: Sizes, nodes: Sequence[GpuNode], wanted: Wanted = Wanted()) -> Choice | NoFit:
    """Choose the fewest GPUs of one kind on one node that the model fits on, and all nodes that
    have that many.

    If no context is requested, the model's own is used, or the longest that fits if it is at least
    ``USEFUL_CONTEXT``. No more GPUs than needed are used: a second replica on the other GPUs serves
    more requests than more tensor parallelism would.
    """
    needed = _needed(sizes.architecture, wanted)
    for count in _counts(sizes.architecture, wanted):
        fits = {
            node.name: best
            for node in nodes
            if (
                best := max(
                    (f for f in _offers(node, count, sizes, wanted) if f[0] >= needed), default=None
                )
            )
        }
        if fits:
            context, gpu_memory = min((found[0], found[1]) for found in fits.values())
            old = any(without_bfloat16(found[2]) for found in fits.values())
            return _choice(
                sizes, wanted, names=tuple(fits), count=count, fit=(context, gpu_memory), old=old
            )

    counts = _counts(sizes.architecture, wanted)
    most = max(
        (f[0] for node in nodes for c in counts for f in _offers(node, c, sizes, wanted)), default=0
    )
    return NoFit(sufficient(sizes, wanted), _one_gpu(sizes, needed), most)


def without_bfloat16(kind: str) -> bool:
    return any(name in kind.upper() for name in _WITHOUT_BFLOAT16)


def _choice(
    sizes: Sizes,
    wanted: Wanted,
    names: tuple[str, ...],
    count: int,
    *,
    fit: tuple[int, int],
    old: bool,
) -> Choice:
    context = wanted.context or fit[0]
    return Choice(
        nodes=names,
        tensor_parallel=count,
        context=context,
        dtype="float16"
        if old and not wanted.dtype and sizes.architecture.dtype != "float16"
        else "",
        weights=memory.weights_bytes(sizes, count),
        kv_cache=memory.kv_cache_bytes(
            sizes.architecture, context, element=sizes.element, tensor_parallel=count
        ),
        working=memory.working_bytes(sizes.architecture, fit[1], count),
    )


def _needed(model: Architecture, wanted: Wanted) -> int:
    return wanted.context or min(model.context, USEFUL_CONTEXT)


def _counts(model: Architecture, wanted: Wanted) -> tuple[int, ...]:
    if wanted.tensor_parallel:
        return (wanted.tensor_parallel,)
    return tuple(count for count in _PARALLEL if memory.allowed_parallelism(model, count))


def _offers(node: GpuNode, count: int, sizes: Sizes, wanted: Wanted) -> list[tuple[int, int, str]]:
    """The node's offers. For each kind of GPU of which it has ``count``: the context that fits, the
    GPU's memory and its name."""
    found = []
    for (kind, gpu_memory), number in Counter(node.gpus).items():
        if number >= count:
            context = memory.largest_context(sizes, gpu_memory, count)
            # vLLM itself refuses a context longer than the model's own.
            if context == sizes.architecture.context:
                context = max(context, wanted.context)

            found.append((_rounded(context, sizes.architecture), gpu_memory, kind))

    return found


def _rounded(context: int, model: Architecture) -> int:
    """Round down to a multiple of 1024, unless the context is the model's own or below 1024."""
    return context if context >= model.context or context < 1024 else context // 1024 * 1024


def sufficient(sizes: Sizes, wanted: Wanted = Wanted()) -> tuple[str, ...]:
    """For each common GPU, the smallest number that the model fits on, at most 8. If the same
    number is needed of several kinds of GPU, only the smallest kind is listed."""
    needed = _needed(sizes.architecture, wanted)
    found = []
    for name, size in COMMON_GPUS:
        for count in _counts(sizes.architecture, replace(wanted, tensor_parallel=0)):
            if count <= 8 and memory.largest_context(sizes, size * GIB, count) >= min(
                needed, sizes.architecture.context
            ):
                found.append((count, f"{count} x {size} GiB ({name})"))
                break

    # The same number of GPUs with more memory is not an alternative worth suggesting.
    return tuple(
        text
        for index, (count, text) in enumerate(found)
        if all(count < earlier for earlier, _ in found[:index])
    )


def _one_gpu(sizes: Sizes, context: int) -> int:
    model = sizes.architecture
    cache = memory.kv_cache_bytes(model, context, element=sizes.element)
    used = sizes.weights + cache + memory.working_bytes(model, 80 * GIB, 1)
    return used * 100 // memory.USABLE_PERCENT
