"""Plugin of pytest for llama.cpp's own server tests: they use the server at ``SUITE_URL``.

Their switch ``DEBUG_EXTERNAL`` starts no server. The address is an instance's, and requests without
a key get ``SUITE_KEY``, because their servers need none.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
import requests

_URL = urlsplit(os.environ["SUITE_URL"])
_KEY = os.environ["SUITE_KEY"]
# The key that their calls of OpenAI's client name for a server without keys.
_NO_KEY = "dummy"
# The tests about keys are the only ones that name keys themselves, or leave them out on purpose.
_ABOUT_KEYS = "test_security"

os.environ["DEBUG_EXTERNAL"] = "1"
# It downloads models, and there is no network.
sys.modules["wget"] = types.ModuleType("wget")

_request = requests.Session.request
_add_key = True


def _request_with_key(self: requests.Session, method: Any, url: Any, **options: Any) -> Any:
    headers = dict(options.get("headers") or {})
    named = {name.lower() for name in headers}
    if _add_key and not named & {"authorization", "x-api-key"}:
        headers["Authorization"] = f"Bearer {_KEY}"
    return _request(self, method, url, **options | {"headers": headers})


class _OpenAI(openai.OpenAI):
    def __init__(self, *, api_key: str, **options: Any) -> None:
        super().__init__(api_key=_KEY if api_key == _NO_KEY else api_key, **options)


requests.Session.request = _request_with_key  # type: ignore[method-assign]
openai.OpenAI = _OpenAI  # type: ignore[misc]


@pytest.fixture(autouse=True)
def external_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    global _add_key
    _add_key = _ABOUT_KEYS not in request.node.nodeid
    utils = sys.modules["utils"]
    start = utils.ServerProcess.start

    def start_external(server: Any, *arguments: Any, **options: Any) -> None:
        start(server, *arguments, **options)
        server.server_host = _URL.hostname
        server.server_port = _URL.port

    monkeypatch.setattr(utils.ServerProcess, "start", start_external)
