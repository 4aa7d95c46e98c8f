"""The catalogue and the estimate: what a model needs, which GPUs can hold it, and what is
refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common import catalog
from moorage.common.catalog import (
    Choice,
    GpuNode,
    Wanted,
    choose,
    find_model,
    kv_cache_bytes,
    load_models,
)
from moorage.common.catalog.architecture import Architecture, UnknownArchitecture, read_config
from moorage.common.catalog.fitting import NoFit, sufficient
from moorage.common.catalog.memory import (
    GIB,
    Sizes,
    allowed_parallelism,
    free_for_cache,
    largest_context,
)

DATA = Path(catalog.__file__).parent / "models.toml"
ENTRIES: list[dict[str, Any]] = tomllib.loads(DATA.read_text())["model"]
LLAMA_8B = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}  # fmt: skip
H100 = ("NVIDIA H100", 80 * GIB)
T4 = ("Tesla T4", 16 * GIB)


def architecture(**changes: Any) -> Architecture:
    return read_config(
        {name: value for name, value in (LLAMA_8B | changes).items() if value is not None}
    )


def sizes(**changes: Any) -> Sizes:
    found = architecture(**changes)
    return Sizes(found, found.weight_bytes)


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["id"] for entry in ENTRIES])
def test_entries_have_as_many_parameters_as_their_publishers_state(entry: dict[str, Any]) -> None:
    found = find_model(entry["id"])
    assert found is not None
    assert found.architecture.parameters == pytest.approx(entry["parameters"], rel=0.002)
    # File sizes: the computed size must match, with a tolerance for data that quantisation adds and
    # data that safetensors store twice.
    counted = found.architecture.weight_bytes
    low, high = (0.28, 0.6) if found.engine == "llamacpp" else (0.85, 1.3)  # 4.5 to 8.5 bits
    assert low < found.weights / counted < high or entry["id"] == "Qwen/Qwen3-0.6B"


def test_entries_are_unique_and_name_entries() -> None:
    names = [model.id for model in load_models()]
    assert len({name.lower() for name in names}) == len(names) >= 25
    for model in load_models():
        assert model.smaller in ("", *names)
        smaller = find_model(model.smaller)
        assert smaller is None or smaller.weights < model.weights
        assert sufficient(model.sizes()), model.id


@pytest.mark.parametrize(
    ("changes", "tokens", "element", "parallel", "expected"),
    [
        # GQA: 2 * 32 layers * 8 heads * 128 * 2 bytes = 128 KiB per token.
        ({}, 1024, 2, 1, 128 * 1024 * 1024),
        ({}, 1024, 1, 1, 64 * 1024 * 1024),
        ({}, 1024, 2, 4, 32 * 1024 * 1024),
        ({}, 1024, 2, 16, 16 * 1024 * 1024),  # more GPUs than KV heads: replicated
        ({}, 1, 2, 1, 16 * 128 * 1024),  # one block
        ({"num_key_value_heads": None}, 1024, 2, 1, 512 * 1024 * 1024),  # MHA
        ({"num_key_value_heads": 1}, 1024, 2, 1, 16 * 1024 * 1024),  # MQA
        ({"head_dim": 64}, 1024, 2, 1, 64 * 1024 * 1024),
        # MLA: 32 layers * 576 elements, on every GPU.
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, 1024, 2, 8, 1024 * 32 * 576 * 2),
        ({"num_local_experts": 8}, 1024, 2, 1, 128 * 1024 * 1024),  # experts have no cache
        # Half of the layers keep 128 tokens.
        (
            {"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 16},
            1024, 2, 1, (1024 + 128) * 64 * 1024,
        ),
        ({"layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8}, 1024, 2, 1, 32 * 1024 * 1024),
        ({"sliding_window": 4096, "use_sliding_window": False}, 8192, 2, 1, 1024 * 1024 * 1024),
        ({"sliding_window": 4096}, 8192, 2, 1, 512 * 1024 * 1024),
    ],
)  # fmt: skip
def test_kv_cache(
    changes: dict[str, Any], tokens: int, element: int, parallel: int, expected: int
) -> None:
    found = kv_cache_bytes(
        architecture(**changes), tokens, element=element, tensor_parallel=parallel
    )
    assert found == expected


@pytest.mark.parametrize(
    ("changes", "gigabytes"),
    [
        ({}, 16.06),
        ({"torch_dtype": "float32"}, 32.12),
        ({"quantization_config": {"quant_method": "fp8"}}, 9.08),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, 5.59),
        ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, 9.08),
        ({"num_local_experts": 8, "vocab_size": 32000}, 93.4),
        ({"tie_word_embeddings": True}, 15.01),
    ],
)
def test_weights(changes: dict[str, Any], gigabytes: float) -> None:
    assert architecture(**changes).weight_bytes / 1e9 == pytest.approx(gigabytes, rel=0.005)


def test_the_language_model_of_a_multimodal_config_counts() -> None:
    assert (
        read_config({"text_config": LLAMA_8B, "vision_config": {"hidden_size": 1}})
        == architecture()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": None}, "contain num_hidden_layers"),
        ({"hidden_size": "4096"}, "contain hidden_size"),
        ({"num_attention_heads": -1}, "contain num_attention_heads"),
        ({"num_hidden_layers": 2**60}, "contain num_hidden_layers"),
        ({"torch_dtype": "int3"}, "'int3' is not one of float32"),
    ],
)
def test_configs_that_say_too_little(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownArchitecture, match=message):
        architecture(**changes)


@pytest.mark.parametrize(
    ("model", "nodes", "wanted", "expected"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", [("a", (H100,) * 8)], Wanted(), ("a", 1, 131072, "")),
        ("meta-llama/Llama-3.1-8B-Instruct", [("a", (T4,) * 4)], Wanted(), ("a", 2, 90112, "float16")),
        ("meta-llama/Llama-3.3-70B-Instruct", [("a", (H100,) * 8)], Wanted(), ("a", 2, 21504, "")),
        (
            "meta-llama/Llama-3.3-70B-Instruct",
            [("a", (H100,) * 8)],
            Wanted(context=131072),
            ("a", 4, 131072, ""),
        ),
        (
            "meta-llama/Llama-3.1-8B-Instruct",
            [("a", (H100,) * 8)],
            Wanted(tensor_parallel=4),
            ("a", 4, 131072, ""),
        ),
        # Two nodes can hold it on one GPU; the third cannot.
        (
            "Qwen/Qwen3-8B",
            [("a", (H100,)), ("b", (T4,) * 2), ("c", (H100,) * 2)],
            Wanted(),
            ("ac", 1, 40960, ""),
        ),
        # 14 heads, which 4 does not divide.
        ("Qwen/Qwen2.5-0.5B-Instruct", [("a", (T4,) * 8)], Wanted(), ("a", 1, 32768, "float16")),
        # GPUs of different kinds do not serve one replica.
        ("microsoft/phi-4", [("a", (T4, T4, H100))], Wanted(), ("a", 1, 16384, "")),
        ("deepseek-ai/DeepSeek-R1", [("a", (("B200", 192 * GIB),) * 8)], Wanted(), ("a", 4, None, "")),
    ],
)  # fmt: skip
def test_choice(model: str, nodes: list[Any], wanted: Wanted, expected: tuple[Any, ...]) -> None:
    entry = find_model(model)
    assert entry is not None
    found = choose(entry.sizes(), [GpuNode(*node) for node in nodes], wanted)
    assert isinstance(found, Choice)
    context = found.context if expected[2] is not None else None
    assert ("".join(found.nodes), found.tensor_parallel, context, found.dtype) == expected


def test_refusal_names_what_would_take_the_model() -> None:
    entry = find_model("meta-llama/Llama-3.3-70B-Instruct")
    assert entry is not None
    found = choose(entry.sizes(), [GpuNode("a", (H100,)), GpuNode("b", (T4,) * 8)])
    assert isinstance(found, NoFit)
    assert "2 x 80 GiB (A100 or H100)" in found.needs
    assert found.context == 0
    assert 140e9 < found.least < 180e9
    too_long = choose(entry.sizes(), [GpuNode("a", (H100,) * 2)], Wanted(context=131072))
    assert isinstance(too_long, NoFit)
    assert too_long.context == 21504


MODELS = st.builds(
    sizes,
    num_hidden_layers=st.integers(1, 128),
    num_attention_heads=st.sampled_from([8, 16, 32, 64]),
    num_key_value_heads=st.sampled_from([1, 2, 4, 8]),
    head_dim=st.sampled_from([64, 128]),
    max_position_embeddings=st.integers(1, 2**20),
    kv_lora_rank=st.sampled_from([None, 512]),
    num_local_experts=st.sampled_from([None, 8]),
    sliding_window=st.sampled_from([None, 128, 4096]),
)
MEMORY = st.integers(1, 192).map(lambda gib: gib * GIB)


@given(MODELS, st.integers(1, 2**20), st.integers(0, 2**20), st.sampled_from([1, 2, 4, 8]))
def test_kv_cache_grows_with_the_context(
    model: Sizes, tokens: int, more: int, parallel: int
) -> None:
    shorter = kv_cache_bytes(model.architecture, tokens, tensor_parallel=parallel)
    assert shorter <= kv_cache_bytes(model.architecture, tokens + more, tensor_parallel=parallel)
    assert shorter >= kv_cache_bytes(model.architecture, tokens, tensor_parallel=2 * parallel)
    assert shorter == 2 * kv_cache_bytes(
        model.architecture, tokens, element=1, tensor_parallel=parallel
    )


@given(MODELS, MEMORY, st.sampled_from([1, 2, 4, 8]))
def test_more_gpus_and_fewer_weights_leave_no_less_context(
    model: Sizes, memory: int, parallel: int
) -> None:
    context = largest_context(model, memory, parallel)
    assert context <= largest_context(model, memory, 2 * parallel)
    lighter = Sizes(model.architecture, model.weights // 2)
    assert context <= largest_context(lighter, memory, parallel)
    assert context <= largest_context(Sizes(model.architecture, model.weights, 1), memory, parallel)


@given(MODELS, MEMORY, st.sampled_from([1, 2, 4, 8]))
def test_largest_context_is_the_largest(model: Sizes, memory: int, parallel: int) -> None:
    context = largest_context(model, memory, parallel)
    free = free_for_cache(model, memory, parallel)
    if context:
        assert kv_cache_bytes(model.architecture, context, tensor_parallel=parallel) <= free
    if 0 < context < model.architecture.context:
        assert kv_cache_bytes(model.architecture, context + 1, tensor_parallel=parallel) > free


@given(
    MODELS,
    st.lists(st.tuples(st.integers(1, 8), MEMORY), min_size=1, max_size=4),
    st.integers(0, 65536),
)
def test_a_choice_fits_and_fewer_gpus_do_not(
    model: Sizes, offered: list[tuple[int, int]], context: int
) -> None:
    nodes = [
        GpuNode(str(at), (("GPU", memory),) * count) for at, (count, memory) in enumerate(offered)
    ]
    found = choose(model, nodes, Wanted(context=context))
    wanted = Wanted(context=context)
    if isinstance(found, NoFit):
        assert all(isinstance(choose(model, [node], wanted), NoFit) for node in nodes)
        return

    assert allowed_parallelism(model.architecture, found.tensor_parallel)
    for node in nodes:
        taken = node.name in found.nodes
        assert taken == isinstance(
            choose(model, [node], Wanted(context, found.tensor_parallel)), Choice
        )
        if taken:
            used = found.weights + found.kv_cache
            assert used <= node.gpus[0][1] * 9 // 10
            assert len(node.gpus) >= found.tensor_parallel

    for fewer in (1, 2, 4):
        if fewer < found.tensor_parallel and allowed_parallelism(model.architecture, fewer):
            assert isinstance(choose(model, nodes, Wanted(context, fewer)), NoFit)
