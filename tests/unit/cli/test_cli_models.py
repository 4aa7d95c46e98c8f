"""``moorage models``, and the choices that ``moorage serve`` makes for a model by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_manager import FakeManager
from invoke import Run
from tests.local_hub import COMMIT, TINY_CONFIG, LocalHub, tiny_model

from moorage.common.catalog.memory import GIB
from moorage.common.views.resources import AgentView, OfferView


def offer(
    slot: str, capacity: int, device: str = "", model: str = "", *, memory: int = 0
) -> OfferView:
    return OfferView(
        slot=slot,
        device_id=device,
        model=model,
        memory_bytes=memory,
        healthy=True,
        capacity=capacity,
        used=0,
    )


def add_node(
    manager: FakeManager, name: str, gpus: int, model: str = "NVIDIA H100", *, gib: int = 80
) -> None:
    """An agent with vLLM."""
    [first, *others] = manager.store.agents.views
    node = first.model_copy(
        update={
            "id": name,
            "engines": ["custom", "llamacpp", "vllm"],
            "offers": [
                offer("cpu", 64_000),
                offer("mem", 512 * GIB),
                *(
                    offer("cuda.device", 1000, f"{name}-{at}", model, memory=gib * GIB)
                    for at in range(gpus)
                ),
            ],
        }
    )
    manager.store.agents.views = [first, *others, node]


def cpu_node(manager: FakeManager, name: str, gib: int) -> None:
    add_node(manager, name, 0)
    node: AgentView = manager.store.agents.views[-1]
    manager.store.agents.views[-1] = node.model_copy(
        update={"offers": [offer("cpu", 4000), offer("mem", gib * GIB)]}
    )


def write_model(folder: Path, weights: int = 1000, **changes: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(TINY_CONFIG | changes))
    (folder / "model.safetensors").write_bytes(b"\0" * weights)
    return folder


def test_list_needs_no_manager(moorage: Run) -> None:
    found = moorage("models", "-o", "json", MOORAGE_URL="http://127.0.0.1:9")
    assert found.exit_code == 0
    models = {model["id"]: model for model in json.loads(found.stdout)["models"]}
    assert models["Qwen/Qwen3-8B"]["attention"] == "GQA"
    assert models["Qwen/Qwen3-8B"]["kv_cache_bytes_per_token"] == 144 * 1024
    assert "1 x 24 GiB (L4)" in moorage("models", "list", "-o", "wide").stdout
    assert "Qwen/Qwen3-8B\n" in moorage("models", "-o", "name").stdout


def test_show_names_the_nodes_that_take_a_model(manager: FakeManager, moorage: Run) -> None:
    add_node(manager, "big", 8)
    add_node(manager, "small", 2, "Tesla T4", gib=16)
    shown = moorage("models", "show", "meta-llama/Llama-3.3-70B-Instruct").stdout
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line}
    assert rows["big"][-3:] == ["yes", "2", "21504"]
    assert rows["small"][-1] == "no"
    assert rows["fits"][1:6] == ["8", "x", "24", "GiB", "(L4)"]
    assert "secrets set" in shown
    args = (
        "models",
        "show",
        "Qwen/Qwen3-8B",
        "--context",
        "16384",
        "--kv-dtype",
        "fp8",
        "-o",
        "json",
    )
    found = json.loads(moorage(*args).stdout)
    assert [(node["node"], node["tensor_parallel"]) for node in found["nodes"]] == [
        ("big", 1),
        ("small", 2),
    ]
    assert found["nodes"][0]["kv_cache_bytes_per_gpu"] == 16384 * 72 * 1024
    assert json.loads(moorage(*args, "--group", "other").stdout)["nodes"] == []


def test_show_without_a_manager_shows_the_model(moorage: Run) -> None:
    result = moorage("models", "show", "Qwen/Qwen3-8B", MOORAGE_URL="http://127.0.0.1:9")
    assert (result.exit_code, "nodes are not shown" in result.stderr) == (0, True)
    assert "15.3GiB in bfloat16" in result.stdout


def test_show_reads_a_directory_and_the_cache(moorage: Run, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "mine")
    found = json.loads(moorage("models", "show", str(folder), "-o", "json").stdout)
    assert (found["source"], found["weight_bytes"], found["context"]) == ("directory", 1000, 2048)
    cache = tmp_path / "hub" / "hub" / "models--org--tiny"
    write_model(cache / "snapshots" / COMMIT, 2000)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(COMMIT)
    found = json.loads(moorage("models", "show", "org/tiny", "-o", "json").stdout)
    assert (found["source"], found["weight_bytes"]) == ("cache", 2000)


def test_show_asks_the_hub(moorage: Run) -> None:
    files = tiny_model() | {"pytorch_model.bin": b"1" * 500, "consolidated.safetensors": b"1" * 900}
    with LocalHub({"org/new": files, "org/gated": files}, tokens={"org/gated": "hf_1"}) as hub:
        online: dict[str, str | None] = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": None}
        found = json.loads(moorage("models", "show", "org/new", "-o", "json", **online).stdout)
        assert (found["source"], found["weight_bytes"], found["kv_heads"]) == ("hub", 1000, 2)
        gated = moorage("models", "show", "org/gated", **online)
        assert (gated.exit_code, "set HF_TOKEN" in gated.stderr) == (2, True)
        assert moorage("models", "show", "org/gated", HF_TOKEN="hf_1", **online).exit_code == 0
        missing = moorage("models", "show", "org/none", **online)
        assert "has no 'org/none'" in missing.stderr
        no_config = moorage("models", "show", "org/new/..", **online)
        assert "neither a directory here nor an id" in no_config.stderr


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        (
            {"HF_HUB_OFFLINE": None, "HF_ENDPOINT": "http://127.0.0.1:9"},
            "http://127.0.0.1:9 does not answer",
        ),
    ],
)
def test_show_says_why_nothing_is_known(
    moorage: Run, environment: dict[str, str | None], message: str
) -> None:
    result = moorage("models", "show", "org/none", **environment)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_serve_takes_as_many_gpus_as_the_model_needs(manager: FakeManager, moorage: Run) -> None:
    add_node(manager, "big", 8)
    add_node(manager, "small", 2, "Tesla T4", gib=16)
    result = moorage("serve", "meta-llama/Llama-3.3-70B-Instruct", "--name", "llama")
    assert result.exit_code == 0, result.stderr
    spec = manager.endpoints["llama"]
    assert spec.resources == {"cpu": "4", "mem": str(12 * GIB), "cuda.device": "2"}
    assert spec.args == ["--max-model-len=21504"]
    assert spec.agents == ["big"]
    assert "2 GPUs with" in result.stderr


def test_serve_passes_what_the_catalogue_and_the_gpus_ask_for(
    manager: FakeManager, moorage: Run
) -> None:
    add_node(manager, "small", 2, "Tesla T4", gib=16)
    assert moorage("serve", "Qwen/Qwen3-4B").exit_code == 0
    spec = manager.endpoints["Qwen3-4B"]
    assert spec.args == ["--reasoning-parser=qwen3", "--max-model-len=39936", "--dtype=float16"]
    args = (
        "--arg=--max_model_len",
        "--arg=4096",
        "--arg=--dtype=float32",
        "--arg=--reasoning-parser=x",
    )
    assert moorage("serve", "Qwen/Qwen3-4B", "--name", "own", *args).exit_code == 0
    own = manager.endpoints["own"]
    assert own.args == [word.removeprefix("--arg=") for word in args]
    assert own.resources["cuda.device"] == "1"


def test_serve_leaves_given_resources_alone(manager: FakeManager, moorage: Run) -> None:
    add_node(manager, "small", 2, "Tesla T4", gib=16)
    assert (
        moorage(
            "serve", "meta-llama/Llama-3.3-70B-Instruct", "--gpus", "1", "--name", "a"
        ).exit_code
        == 0
    )
    assert manager.endpoints["a"].resources["cuda.device"] == "1"
    assert manager.endpoints["a"].args == []


def test_serve_refuses_what_fits_nowhere_and_names_what_would(
    manager: FakeManager, moorage: Run
) -> None:
    add_node(manager, "small", 2, "Tesla T4", gib=16)
    result = moorage("serve", "meta-llama/Llama-3.3-70B-Instruct")
    assert result.exit_code == 1
    assert (
        "no node of resource group default has that much: small has 2 x Tesla T4 (16GiB)"
        in result.stderr
    )
    assert (
        "it would fit 8 x 24 GiB (L4) or 4 x 48 GiB (L40S) or 2 x 80 GiB (A100 or H100)"
        in result.stderr
    )
    assert "serve meta-llama/Llama-3.1-8B-Instruct" in result.stderr
    assert manager.endpoints == {}
    long = moorage("serve", "meta-llama/Llama-3.1-8B-Instruct", "--arg=--max-model-len=131072")
    assert "--max-model-len=90112 here" in long.stderr


def test_serve_on_a_node_without_gpus_asks_for_memory(
    manager: FakeManager, moorage: Run, tmp_path: Path
) -> None:
    cpu_node(manager, "plain", 8)
    folder = write_model(tmp_path / "mine", 10_000)
    assert moorage("serve", str(folder)).exit_code == 0
    spec = manager.endpoints["mine"]
    assert spec.resources == {"cpu": "1", "mem": str(10_000 + 4 * GIB)}
    assert spec.env == {"VLLM_CPU_KVCACHE_SPACE": "1"}
    assert spec.args == ["--max-model-len=2048"]
    result = moorage("serve", "Qwen/Qwen3-8B")
    assert (
        "of memory for 8192 tokens of context without a GPU; the largest node, plain, has 8GiB"
        in (result.stderr)
    )


def test_serve_of_gguf_by_id_takes_memory_for_its_context(
    manager: FakeManager, moorage: Run
) -> None:
    cpu_node(manager, "plain", 8)
    assert moorage("serve", "Qwen/Qwen3-0.6B-GGUF:q8_0").exit_code == 0
    spec = manager.endpoints["Qwen3-0.6B"]
    assert (spec.engine, spec.model) == ("llamacpp", "Qwen/Qwen3-0.6B-GGUF:q8_0")
    assert spec.resources["mem"] == str(639_446_688 + 8192 * 112 * 1024 + GIB // 2)
    assert spec.args == ["--ctx-size=8192"]
    assert spec.start_timeout_s == 932
    unknown = moorage("serve", "org/tiny-GGUF:Q8_0")
    assert unknown.exit_code == 0
    assert "org/tiny-GGUF:Q8_0 is not in the catalogue" in unknown.stderr
    assert "is not on this machine" not in unknown.stderr
    assert manager.endpoints["tiny"].engine == "llamacpp"


def test_serve_of_an_unknown_model_goes_on_without_an_estimate(
    manager: FakeManager, moorage: Run
) -> None:
    add_node(manager, "big", 8)
    result = moorage("serve", "org/unknown")
    assert result.exit_code == 0
    assert "note: the needs of org/unknown are unknown" in result.stderr
    assert manager.endpoints["unknown"].resources == {"cpu": 1, "mem": "1GiB"}


def test_serve_refuses_a_malformed_context(manager: FakeManager, moorage: Run) -> None:
    add_node(manager, "big", 8)
    result = moorage("serve", "Qwen/Qwen3-8B", "--arg=--max-model-len=16k")
    assert result.exit_code == 2
    assert "--arg --max-model-len='16k' is not a number" in result.stderr
    assert manager.endpoints == {}
