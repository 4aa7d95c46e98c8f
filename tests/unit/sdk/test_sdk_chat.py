"""Chat over an HTTP stream with arbitrary chunk boundaries."""

from typing import Any

import pytest
from fake_manager import KEY, FakeManager

from moorage.sdk import ApiError, Message, Unreachable, chat
from moorage.sdk.chat_completions import EventReader

ASK: list[Message] = [{"role": "user", "content": "Hello"}]


async def ask(manager: FakeManager, key: str = KEY, **options: Any) -> list[str]:
    return [text async for text in chat(manager.openai_url, key, "tiny", ASK, **options)]


async def test_chat_with_and_without_streaming(manager: FakeManager) -> None:
    manager.openai.chunks = ["Ünï", " 🚢", "."]
    assert await ask(manager) == ["Ünï", " 🚢", "."]
    assert await ask(manager, stream=False) == ["Ünï 🚢."]
    assert await ask(manager, max_tokens=3) == ["Ünï", " 🚢", "."]
    assert [ask.get("max_tokens") for ask in manager.openai.requests] == [None, None, 3]
    assert manager.openai.requests[0] == {"model": "tiny", "messages": ASK, "stream": True}


async def test_error_in_mid_stream(manager: FakeManager) -> None:
    manager.openai.chunks = [
        "so far",
        {"error": {"message": "the engine died", "type": "server_error", "code": 500}},
    ]
    pieces = chat(manager.openai_url, KEY, "tiny", ASK)
    assert await anext(pieces) == "so far"
    with pytest.raises(ApiError, match="the engine died") as caught:
        await anext(pieces)
    assert caught.value.status == 500


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (
            404,
            '{"error": {"message": "no model", "type": "x", "code": "model_not_found"}}',
            "no model.*moorage ps",
        ),
        (401, '{"error": "Unauthorized"}', "Unauthorized.*--key-file"),
        (503, '{"detail": "?"}', "not an OpenAI API"),
        (200, "<html>", "not an OpenAI API"),
        (200, '{"error": null, "choices": []}', "not an OpenAI API"),
    ],
)
async def test_error_bodies(manager: FakeManager, status: int, body: str, message: str) -> None:
    manager.can("POST", "/v1/chat/completions", status, body)
    with pytest.raises(ApiError, match=message):
        await ask(manager, stream=False)


async def test_stream_without_its_end_is_an_error(manager: FakeManager) -> None:
    manager.openai.sends_done = False
    with pytest.raises(Unreachable, match="was cut off"):
        await ask(manager)


async def test_unreachable_proxy() -> None:
    with pytest.raises(Unreachable, match=r"--openai-url"):
        _ = [text async for text in chat("http://127.0.0.1:1/v1", KEY, "tiny", ASK)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_event_reader_accepts_chunks_of_any_size(size: int) -> None:
    raw = b": hi\n\ndata: a\r\ndata: b\r\n\r\n"
    raw += b"event: error\ndata:c\n\nid: 7\ndata: \xc3\xbc\n\ndata: unfinished\n"
    reader = EventReader()
    found = []
    for start in range(0, len(raw), size):
        found += list(reader.feed(raw[start : start + size]))
    assert found == [("", "a\nb"), ("error", "c"), ("", "ü")]
