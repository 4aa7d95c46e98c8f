"""Architecture of a model: the numbers in its ``config.json`` that determine how much memory it
needs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Bytes per parameter, by the value of `torch_dtype`.
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1}
# Bits per parameter of the linear layers, by `quant_method`, used if the config does not contain
# the number.
_QUANTIZED_BITS = {
    "fp8": 8,
    "mxfp4": 4.25,
    "awq": 4,
    "gptq": 4,
    "bitsandbytes": 4,
    "compressed-tensors": 8,
}


class UnknownArchitecture(ValueError):
    """The config lacks a number that the estimate needs. The message names it."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """``full_layers`` keep keys and values for the whole context, ``window_layers`` for the last
    ``window`` tokens; layers with a fixed-size state count as neither. ``latent``: elements that
    MLA keeps per token and layer, 0 for other attention. ``parameters``: computed from the other
    numbers. ``bits``: size of a linear layer's parameter. ``context``: the maximum number of tokens
    in a sequence."""

    full_layers: int
    window_layers: int
    window: int
    heads: int
    kv_heads: int
    head_dim: int
    latent: int
    hidden: int
    inner: int
    vocabulary: int
    experts: int
    context: int
    dtype: str
    quantization: str
    bits: float
    parameters: int
    embedding_parameters: int

    @property
    def weight_bytes(self) -> int:
        """Size of the weights in bytes, for a model whose files are not known.

        Quantisation leaves embeddings unchanged: the safetensors of AWQ, GPTQ and FP8 models keep
        `embed_tokens` and `lm_head` in the model's dtype."""
        linear = self.parameters - self.embedding_parameters
        return int(linear * self.bits / 8) + self.embedding_parameters * DTYPE_BYTES[self.dtype]

    @property
    def attention(self) -> str:
        if self.latent:
            return "MLA"
        if self.kv_heads == self.heads:
            return "MHA"
        return "MQA" if self.kv_heads == 1 else "GQA"


def read_config(config: Mapping[str, Any]) -> Architecture:
    """Read the architecture from a hub's ``config.json``; for a multimodal model, that of its
    language model.

    The names and defaults are those of transformers: `num_key_value_heads` defaults to
    `num_attention_heads`, `head_dim` to `hidden_size / num_attention_heads`. Raises
    ``UnknownArchitecture``.
    """
    quantized = config.get("quantization_config") or {}
    text = config.get("text_config") or config
    layers = _number(text, "num_hidden_layers", "n_layer")
    hidden = _number(text, "hidden_size", "n_embd")
    heads = _number(text, "num_attention_heads", "n_head")
    context = _number(text, "max_position_embeddings", "n_positions", default=2048)
    kinds = [str(kind) for kind in text.get("layer_types") or ["full_attention"] * layers]
    if (
        not text.get("layer_types")
        and text.get("sliding_window")
        and text.get("use_sliding_window", True)
    ):
        kinds = ["sliding_attention"] * layers

    window = _number(text, "sliding_window", default=0)
    dtype = str(
        config.get("dtype") or config.get("torch_dtype") or text.get("torch_dtype") or "bfloat16"
    )
    dtype = dtype.removeprefix("torch.")
    if dtype not in DTYPE_BYTES:
        raise UnknownArchitecture(f"its dtype {dtype!r} is not one of {', '.join(DTYPE_BYTES)}")

    method = str(quantized.get("quant_method", ""))
    bits = (
        float(quantized.get("bits") or _QUANTIZED_BITS.get(method, 0)) or 8.0 * DTYPE_BYTES[dtype]
    )
    latent = _number(text, "kv_lora_rank", default=0)
    vocabulary = _number(text, "vocab_size", default=0)
    tied = bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False)))
    embeddings = vocabulary * hidden * (1 if tied else 2)

    return Architecture(
        full_layers=sum(kind == "full_attention" for kind in kinds),
        window_layers=sum(kind in ("sliding_attention", "chunked_attention") for kind in kinds),
        window=window,
        heads=heads,
        kv_heads=_number(text, "num_key_value_heads", default=heads),
        head_dim=_number(text, "head_dim", default=hidden // heads),
        latent=latent + _number(text, "qk_rope_head_dim", default=0) if latent else 0,
        hidden=hidden,
        inner=_number(text, "intermediate_size", "n_inner", default=4 * hidden),
        vocabulary=vocabulary,
        experts=_experts(text),
        context=context,
        dtype=dtype,
        quantization=method,
        bits=bits,
        parameters=embeddings
        + layers * _attention(text, hidden, heads)
        + _mlp(text, layers, hidden),
        embedding_parameters=embeddings,
    )


def _number(config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40:
            return value
    if default is None:
        raise UnknownArchitecture(f"its config.json does not contain {names[0]}")
    return default


def _experts(text: Mapping[str, Any]) -> int:
    return _number(text, "num_experts", "num_local_experts", "n_routed_experts", default=0)


def _attention(text: Mapping[str, Any], hidden: int, heads: int) -> int:
    """Number of parameters of one layer's attention, without biases and norms."""
    latent = _number(text, "kv_lora_rank", default=0)
    if not latent:
        kv_heads = _number(text, "num_key_value_heads", default=heads)
        return 2 * hidden * _number(text, "head_dim", default=hidden // heads) * (heads + kv_heads)

    rope = _number(text, "qk_rope_head_dim", default=0)
    nope = _number(text, "qk_nope_head_dim", default=0)
    value = _number(text, "v_head_dim", default=0)
    query = _number(text, "q_lora_rank", default=0)
    queries = heads * (nope + rope)
    query_parameters = hidden * query + query * queries if query else hidden * queries
    up = latent * heads * (nope + value)

    return query_parameters + hidden * (latent + rope) + up + heads * value * hidden


def _mlp(text: Mapping[str, Any], layers: int, hidden: int) -> int:
    """Number of parameters of all gated MLPs, including the router and the experts of MoE
    layers."""
    inner = _number(text, "intermediate_size", "n_inner", default=4 * hidden)
    experts = _experts(text)
    if not experts:
        return layers * 3 * hidden * inner

    dense = _number(text, "first_k_dense_replace", default=0)
    expert = 3 * hidden * _number(text, "moe_intermediate_size", default=inner)
    shared = _number(text, "n_shared_experts", default=0)
    return dense * 3 * hidden * inner + (layers - dense) * (
        expert * (experts + shared) + hidden * experts
    )
