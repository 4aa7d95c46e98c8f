"""The tiny demo model: served by a real llama.cpp server, reproducible, and consistent with its
tokenizer."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from moorage.common.model.errors import StartupError
from moorage.demo.model import CHAT_TEMPLATE, SPECIALS, WORDS, write_tiny_gguf, write_tiny_llama_dir

SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.model_alias, params.n_ctx = sys.argv[1], {"tiny"}, 2048
params.hostnames, params.port, params.verbosity = ["127.0.0.1"], 0, 1
params.embedding = sys.argv[2] == "embedding"
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@contextmanager
def serving(gguf: Path, mode: str = "chat") -> Iterator[str]:
    command = [sys.executable, "-c", SERVER, str(gguf), mode]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.kill()


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


async def test_llamacpp_answers_in_words_and_ends_by_itself(gguf: Path) -> None:
    ask = {"model": "tiny", "messages": [{"role": "user", "content": "Who are you? Ünïcode 🚢"}]}
    with serving(gguf) as url:
        async with aiohttp.ClientSession(url) as http:
            for seed in range(5):
                async with http.post("/v1/chat/completions", json=ask | {"seed": seed}) as answer:
                    body = await answer.json()
                    assert answer.status == 200, body

                text = body["choices"][0]["message"]["content"]
                assert body["choices"][0]["finish_reason"] == "stop"
                assert text.strip()
                assert set(text.replace(".", "").split()) <= set(WORDS)

            plain = {
                "model": "tiny",
                "prompt": "",
                "max_tokens": 30,
                "temperature": 1.9,
                "ignore_eos": True,
            }
            async with http.post("/v1/completions", json=plain) as answer:
                body = await answer.json()

            assert body["usage"]["completion_tokens"] == 30
            assert set(body["choices"][0]["text"].replace(".", "").split()) <= set(WORDS)


async def test_streaming(gguf: Path) -> None:
    ask = {
        "model": "tiny",
        "stream": True,
        "max_tokens": 20,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": "Hello"}],
    }
    with serving(gguf) as url:
        async with (
            aiohttp.ClientSession(url) as http,
            http.post("/v1/chat/completions", json=ask) as answer,
        ):
            lines = [line.decode().strip() async for line in answer.content]

    events = [line.removeprefix("data: ") for line in lines if line]
    assert events[-1] == "[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"].get("content") for event in events[:-1]]
    assert len([text for text in deltas if text]) == 20


async def test_embeddings(gguf: Path) -> None:
    with serving(gguf, "embedding") as url:
        async with aiohttp.ClientSession(url) as http:
            ask = {"model": "tiny", "input": ["the sea", "the moon"]}
            async with http.post("/v1/embeddings", json=ask) as answer:
                body = await answer.json()
                assert answer.status == 200, body
    first, second = (row["embedding"] for row in body["data"])
    assert len(first) == len(second) == 128
    assert first != second


def test_same_seed_gives_same_bytes_and_no_temporary_files(gguf: Path, tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "again.gguf")
    write_tiny_gguf(tmp_path / "other.gguf", seed=1)
    assert (tmp_path / "again.gguf").read_bytes() == gguf.read_bytes()
    assert (tmp_path / "other.gguf").read_bytes() != gguf.read_bytes()
    assert gguf.stat().st_size < 5_000_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.gguf", "other.gguf"]


def test_missing_extra_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(StartupError, match=r"gguf.*moorage\[demo\]"):
        write_tiny_gguf(tmp_path / "tiny.gguf")
    assert not list(tmp_path.iterdir())


def test_hugging_face_directory_is_consistent(tmp_path: Path) -> None:
    write_tiny_llama_dir(tmp_path)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    vocab = tokenizer["model"]["vocab"]
    assert sorted(vocab.values()) == list(range(len(vocab)))
    assert len(vocab) <= config["vocab_size"]
    assert all(vocab[text] == number for number, text in enumerate(SPECIALS))
    for merge in tokenizer["model"]["merges"]:
        assert merge.replace(" ", "") in vocab

    settings = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert settings["chat_template"] == CHAT_TEMPLATE
    assert not list(tmp_path.glob("*.safetensors"))


def test_the_command_writes_the_model_alone_and_replaces_no_file(tmp_path: Path) -> None:
    def demo(file: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "moorage", "demo", "--model-only", str(file)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    written = demo(tmp_path / "tiny.gguf")
    assert (written.returncode, written.stdout) == (0, f"{tmp_path}/tiny.gguf\n"), written.stderr
    assert (tmp_path / "tiny.gguf").read_bytes()[:4] == b"GGUF"

    mine = tmp_path / "mine.gguf"
    mine.write_text("a real model")
    again = demo(mine)
    assert again.returncode == 2
    assert f"--model-only: {mine} exists already; name another file" in again.stderr
    assert mine.read_text() == "a real model"

    (tmp_path / "file").touch()
    nowhere = demo(tmp_path / "file" / "tiny.gguf")
    assert nowhere.returncode == 2
    assert "name a file in a directory" in nowhere.stderr
