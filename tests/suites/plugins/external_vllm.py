"""Plugin of pytest for vLLM's own tests: they use the server at ``SUITE_URL``, which serves all
their models' names and needs no key.

It stands for their module ``tests.utils``. ``SUITE_MODEL``: the directory of the model that the
server has, whose tokenizer they get under every name.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anthropic
import openai
import requests
import transformers
from vllm.transformers_utils import repo_utils

from vllm import tokenizers

_URL = os.environ["SUITE_URL"]
_MODEL = os.environ["SUITE_MODEL"]
_WAIT_S = 30


class RemoteOpenAIServer:
    """A server that runs already, whatever options a test wants."""

    DUMMY_API_KEY = "token-abc123"
    uds = None

    def __init__(self, *_: Any, **__: Any) -> None:
        address = urlsplit(_URL)
        self.host = address.hostname
        self.port = address.port

    def __enter__(self) -> RemoteOpenAIServer:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    @property
    def url_root(self) -> str:
        return _URL

    def url_for(self, *parts: str) -> str:
        return "/".join((_URL, *(part.strip("/") for part in parts)))

    def _options(self, options: dict[str, Any], path: str) -> dict[str, Any]:
        fixed = {"base_url": f"{_URL}{path}", "api_key": self.DUMMY_API_KEY, "max_retries": 0}
        return {"timeout": _WAIT_S} | options | fixed

    def get_client(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(**self._options(options, "/v1"))

    def get_async_client(self, **options: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(**self._options(options, "/v1"))

    def get_client_anthropic(self, **options: Any) -> anthropic.Anthropic:
        return anthropic.Anthropic(**self._options(options, ""))

    def get_async_client_anthropic(self, **options: Any) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(**self._options(options, ""))


def _undecorated(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _decorator(*arguments: Any, **_: Any) -> Any:
    """One of their decorators, such as ``multi_gpu_only``: with arguments or without."""
    return arguments[0] if arguments and callable(arguments[0]) else _undecorated


class _Hub:
    """Their adapters are names of the server's model, so their files do not matter."""

    def snapshot_download(self, *_: Any, **__: Any) -> str:
        return _MODEL


_get_tokenizer = tokenizers.get_tokenizer
_from_pretrained = transformers.AutoTokenizer.from_pretrained
_request = requests.Session.request


def _request_in_time(self: requests.Session, *arguments: Any, **options: Any) -> Any:
    return _request(self, *arguments, **{"timeout": _WAIT_S} | options)


def _local_tokenizer(*_: Any, **__: Any) -> Any:
    return _get_tokenizer(_MODEL)


def _local_pretrained(*_: Any, **__: Any) -> Any:
    return _from_pretrained(_MODEL)


utils = types.ModuleType("tests.utils")
utils.RemoteOpenAIServer = RemoteOpenAIServer  # type: ignore[attr-defined]
utils.RemoteVLLMServer = RemoteOpenAIServer  # type: ignore[attr-defined]
utils.VLLM_PATH = Path()  # type: ignore[attr-defined]
utils.ROCM_EXTRA_ARGS = []  # type: ignore[attr-defined]
utils.multi_gpu_only = _decorator  # type: ignore[attr-defined]
utils.requires_fp8 = _decorator  # type: ignore[attr-defined]
sys.modules["tests.utils"] = utils

requests.Session.request = _request_in_time  # type: ignore[method-assign]
repo_utils.hf_api = _Hub
tokenizers.get_tokenizer = _local_tokenizer
transformers.AutoTokenizer.from_pretrained = _local_pretrained
