"""Weights for the tiny Llama model and a LoRA adapter for it, as safetensors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from moorage.demo.model import (
    FEED_FORWARD,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    write_tiny_gguf,
)

RANK = 8
_KEYS = KV_HEADS * HEAD_DIM
_QUERIES = HEADS * HEAD_DIM
_LAYER = {
    "self_attn.q_proj": (_QUERIES, HIDDEN),
    "self_attn.k_proj": (_KEYS, HIDDEN),
    "self_attn.v_proj": (_KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, _QUERIES),
    "mlp.gate_proj": (FEED_FORWARD, HIDDEN),
    "mlp.up_proj": (FEED_FORWARD, HIDDEN),
    "mlp.down_proj": (HIDDEN, FEED_FORWARD),
}
# Their names in a GGUF file.
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def write_weights(model: Path) -> None:
    """Random weights for the model in this directory."""
    size = json.loads((model / "config.json").read_text())["vocab_size"]
    _write(model / "model.safetensors", _random(_weights(size)))


def write_readable_weights(model: Path) -> None:
    """The weights of the demo's GGUF file: every answer has at least one word and ends by
    itself."""
    source = model / "tiny.gguf"
    write_tiny_gguf(source)
    read = [(tensor.name, tensor.data) for tensor in gguf.GGUFReader(source).tensors]
    _write(model / "model.safetensors", ((_hub_name(name), values) for name, values in read))


def _hub_name(name: str) -> str:
    *block, tensor, _ = name.split(".")
    layer = f"model.layers.{block[1]}." if block else ""
    return f"{layer}{_NAMES[tensor]}.weight"


def write_adapter(path: Path) -> None:
    """An adapter that changes the model's answers."""
    path.mkdir()
    modules = ["q_proj", "v_proj"]
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": 64,
        "target_modules": modules,
        "bias": "none",
    }
    (path / "adapter_config.json").write_text(json.dumps(config))
    _write(path / "adapter_model.safetensors", _random(_adapter()))


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


def _random(shapes: Shapes) -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(7)
    yield from ((name, rng.normal(0, 0.2, shape)) for name, shape in shapes)


def _write(path: Path, tensors: Iterable[tuple[str, Any]]) -> None:
    """The format: the header's size, the header as JSON, and the numbers."""
    header = {}
    data = b""
    for name, values in tensors:
        offset = len(data)
        data += values.astype("<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(values.shape),
            "data_offsets": [offset, len(data)],
        }

    head = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)
