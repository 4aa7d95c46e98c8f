"""Log lines within a request: ours and the libraries' have its trace and session."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.json_lines import json_lines

from .served_api import Api

TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "x-request-id": "r-1"}


async def test_lines_have_trace_and_session(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = await api.request("POST", "/v1/sessions", json={"name": "job", "command": ["true"]})

    def read(*given: Any, **options: Any) -> Any:
        logging.getLogger("library").warning("within")
        raise RuntimeError("a bug")

    monkeypatch.setattr(api.logs, "read", read)
    with json_lines("manager") as lines:
        response, _ = await api.request("GET", "/v1/sessions/job/logs", headers=HEADERS)
        assert response.status == 500
        logging.getLogger("library").warning("outside")

    within, outside = lines.of("library")
    (failed,) = lines.of("moorage.api")
    for line in (within, failed):
        assert (line["trace_id"], line["session_id"]) == (TRACE, made["id"])
        assert (line["request_id"], line["component"]) == ("r-1", "manager")

    assert "a bug" in failed["exception"]
    assert not outside.keys() & {"trace_id", "session_id", "request_id"}


async def test_lines_have_the_endpoint(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(*given: Any) -> Any:
        await asyncio.to_thread(logging.getLogger("library").warning, "in a thread")
        raise RuntimeError("a bug")

    monkeypatch.setattr(api.endpoints, "get", get)
    with json_lines("manager") as lines:
        response, _ = await api.request("GET", "/v1/endpoints/chat")
        assert response.status == 500

    (line,) = lines.of("library")
    assert line["endpoint"] == "chat"
