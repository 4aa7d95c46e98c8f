"""Weights for the tiny Llama model, and a LoRA adapter of it, as safetensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from moorage.demo.model import FEED_FORWARD, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS

RANK = 8
_KEYS, _QUERIES = KV_HEADS * HEAD_DIM, HEADS * HEAD_DIM
_LAYER = {
    "self_attn.q_proj": (_QUERIES, HIDDEN),
    "self_attn.k_proj": (_KEYS, HIDDEN),
    "self_attn.v_proj": (_KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, _QUERIES),
    "mlp.gate_proj": (FEED_FORWARD, HIDDEN),
    "mlp.up_proj": (FEED_FORWARD, HIDDEN),
    "mlp.down_proj": (HIDDEN, FEED_FORWARD),
}

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def write_weights(model: Path) -> None:
    """Random weights for the model in this directory."""
    size = json.loads((model / "config.json").read_text())["vocab_size"]
    _write(model / "model.safetensors", _weights(size))


def write_adapter(path: Path) -> None:
    """An adapter that changes what the model answers."""
    path.mkdir()
    modules = ["q_proj", "v_proj"]
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 64, "target_modules": modules, "bias": "none"}
    (path / "adapter_config.json").write_text(json.dumps(config))
    _write(path / "adapter_model.safetensors", _adapter())


def _weights(vocabulary: int) -> Shapes:
    yield "model.embed_tokens.weight", (vocabulary, HIDDEN)
    yield "lm_head.weight", (vocabulary, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    for layer in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"model.layers.{layer}.{norm}.weight", (HIDDEN,)
        for name, shape in _LAYER.items():
            yield f"model.layers.{layer}.{name}.weight", shape


def _adapter() -> Shapes:
    for layer in range(LAYERS):
        for name in ("self_attn.q_proj", "self_attn.v_proj"):
            out, size = _LAYER[name]
            prefix = f"base_model.model.model.layers.{layer}.{name}"
            yield f"{prefix}.lora_A.weight", (RANK, size)
            yield f"{prefix}.lora_B.weight", (out, RANK)


def _write(path: Path, shapes: Shapes) -> None:
    """The format: the size of the header, the header as JSON, the numbers."""
    rng, header, data = np.random.default_rng(7), {}, b""
    for name, shape in shapes:
        values = rng.normal(0, 0.2, shape).astype("<f4").tobytes()
        offsets = [len(data), len(data) + len(values)]
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": offsets}
        data += values
    head = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)
