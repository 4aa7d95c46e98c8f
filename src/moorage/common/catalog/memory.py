"""Memory that serving a model needs: weights, KV cache and working memory, per GPU. Pure.

All sizes in bytes. The rules are vLLM's; each has its source in its docstring.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from moorage.common.catalog.architecture import DTYPE_BYTES, Architecture

GIB = 1024**3
# Tokens in one block of the KV cache: vLLM's `--block-size` on GPUs.
BLOCK = 16
# Share of a GPU's memory that vLLM uses: its `--gpu-memory-utilization`, in percent.
USABLE_PERCENT = 90
# Memory for one process's CUDA context, NCCL buffers and CUDA graphs.
FIXED = GIB
# With at least this much memory, vLLM's server batches 8192 tokens of up to 1024 sequences; with
# less, 2048 tokens of up to 256.
_LARGE_GPU = 70 * GIB


@dataclass(frozen=True, slots=True)
class Sizes:
    """``weights``: total size of the files that the engine loads. ``element``: bytes per element of
    the KV cache."""

    architecture: Architecture
    weights: int
    element: int = 2


def element_bytes(dtype: str) -> int:
    """Bytes per element of the KV cache in this dtype; `--kv-cache-dtype auto` means the model's
    dtype. vLLM serves float32 as float16 on GPUs (`--dtype auto`); fp8 takes one byte."""
    return 1 if dtype.startswith("fp8") else min(2, DTYPE_BYTES.get(dtype, 2))


def kv_cache_bytes(
    model: Architecture, tokens: int, *, element: int = 2, tensor_parallel: int = 1
) -> int:
    """Bytes that the KV cache of one sequence of ``tokens`` takes on each of ``tensor_parallel``
    GPUs.

    Attention keeps a key and a value per KV head: 2 * layers * kv_heads * head_dim elements per
    token (Ainslie et al., "GQA", 2023). Tensor parallelism divides the KV heads, and replicates
    them if there are fewer heads than GPUs (vLLM's `get_num_kv_heads`). MLA keeps one compressed
    vector of kv_lora_rank + qk_rope_head_dim per token and layer (DeepSeek-V2, 2.1), which every
    GPU has in full. Layers with a sliding window keep only the tokens in the window (vLLM's hybrid
    KV cache). The cache consists of whole blocks.
    """
    per_layer = model.latent or 2 * math.ceil(model.kv_heads / tensor_parallel) * model.head_dim
    full = _blocks(min(tokens, model.context)) * model.full_layers
    window = _blocks(min(tokens, model.window or tokens)) * model.window_layers

    return (full + window) * per_layer * element


def weights_bytes(sizes: Sizes, tensor_parallel: int) -> int:
    """Bytes of weights on each GPU. Linear layers, experts and embeddings are divided evenly
    (Megatron-LM); replicated parts, such as norms and routers, are less than 1 % and counted as
    working memory."""
    return math.ceil(sizes.weights / tensor_parallel)


def working_bytes(model: Architecture, gpu_memory: int, tensor_parallel: int) -> int:
    """Memory in addition to weights and KV cache: the peak memory of activations, which vLLM
    measures with its largest batch.

    The batch has 8192 tokens and 1024 sequences on GPUs with at least 70 GiB of memory, and 2048
    tokens and 256 sequences on smaller ones (vLLM's `get_batch_defaults` for its server). For each
    token, memory holds the hidden state four times in 16 bits (input, residual, attention, output),
    and the divided inner state of a gated MLP twice. For each sequence, it holds the logits twice
    in 32 bits, as logits and as probabilities.
    """
    tokens, sequences = (8192, 1024) if gpu_memory >= _LARGE_GPU else (2048, 256)
    per_token = 2 * (4 * model.hidden + 2 * math.ceil(model.inner / tensor_parallel))
    return FIXED + tokens * per_token + sequences * model.vocabulary * 4 * 2


def free_for_cache(sizes: Sizes, gpu_memory: int, tensor_parallel: int) -> int:
    """Bytes that each GPU has left for the KV cache; negative if the model does not fit."""
    usable = gpu_memory * USABLE_PERCENT // 100
    working = working_bytes(sizes.architecture, gpu_memory, tensor_parallel)
    return usable - working - weights_bytes(sizes, tensor_parallel)


def largest_context(sizes: Sizes, gpu_memory: int, tensor_parallel: int) -> int:
    """Maximum number of tokens in one sequence that fits, at most the model's own context; 0 if
    none fit. vLLM refuses to start if the cache has no room for one sequence of
    `--max-model-len`."""
    return context_in(sizes, free_for_cache(sizes, gpu_memory, tensor_parallel), tensor_parallel)


def context_in(sizes: Sizes, free: int, tensor_parallel: int = 1) -> int:
    """Maximum number of tokens in one sequence whose KV cache needs at most ``free`` bytes."""
    if free <= 0:
        return 0

    low = 0
    high = sizes.architecture.context
    while low < high:
        middle = (low + high + 1) // 2
        needed = kv_cache_bytes(
            sizes.architecture, middle, element=sizes.element, tensor_parallel=tensor_parallel
        )
        low, high = (middle, high) if needed <= free else (low, middle - 1)

    return low


def allowed_parallelism(model: Architecture, tensor_parallel: int) -> bool:
    """Whether vLLM allows this tensor parallelism. It must divide the attention heads evenly
    (`verify_with_parallel_config`), and likewise the KV heads or their copies."""
    if model.heads % tensor_parallel:
        return False
    return bool(
        model.latent
        or model.kv_heads % tensor_parallel == 0
        or tensor_parallel % model.kv_heads == 0
    )


def _blocks(tokens: int) -> int:
    return math.ceil(tokens / BLOCK) * BLOCK
