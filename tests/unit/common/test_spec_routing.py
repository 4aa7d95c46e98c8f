"""Routing in endpoint specifications."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from moorage.common.model.spec import EndpointSpec


def spec(**routing: Any) -> EndpointSpec:
    fields = {"name": "m", "engine": "vllm", "model": "org/model", "routing": routing}
    return EndpointSpec.model_validate(fields)


def test_the_keys_of_providers_are_secrets_of_the_endpoint() -> None:
    provider = {"model": "gpt", "url": "https://api.example.com/v1", "secret": "theirs"}
    made = spec(fallbacks=[{"model": "small"}, provider])
    made = made.model_copy(update={"secret_env": {"HF_TOKEN": "hf"}})
    assert made.secrets == {"theirs", "hf"}
    assert "routing" not in made.template()


def custom(*apis: str) -> EndpointSpec:
    fields = {
        "name": "m",
        "engine": "custom",
        "command": ["serve"],
        "probe": {"path": "/health"},
        "routing": {"apis": apis},
    }
    return EndpointSpec.model_validate(fields)


def test_a_custom_endpoint_lists_its_paths() -> None:
    assert custom("/v1/images/generations", "/generate").routing.apis[1] == "/generate"
    with pytest.raises(ValidationError, match=r"`routing.apis` requires engine 'custom'"):
        spec(apis=["/generate"])


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("generate", "each after a slash"),
        ("/", "each after a slash"),
        ("/a/../b", "each after a slash"),
        ("/a//b", "each after a slash"),
        ("/a%2e", "each after a slash"),
        ("/a?b=1", "each after a slash"),
        (f"/{'a' * 256}", "each after a slash"),
        ("/v1/models", "answers it itself"),
        ("/v1/responses/x", "answers it itself"),
        ("/p/a/v1/x", "answers it itself"),
        ("/openai/x", "answers it itself"),
        ("/health", "answers it itself"),
        ("/v1/load_lora_adapter", "administrative path"),
        ("/slots/0", "administrative path"),
        ("/sleep", "administrative path"),
    ],
)
def test_paths_that_no_endpoint_lists(path: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        custom("/generate", path)


@pytest.mark.parametrize(
    ("fallback", "problem"),
    [
        ({"model": "m"}, "names 'm' itself"),
        ({"model": ""}, "at least 1 character"),
        ({"model": "small", "secret": "theirs"}, "it requires `url`"),
        ({"model": "gpt", "url": "http://api.example.com/v1"}, "not encrypted"),
        ({"model": "gpt", "url": "https://ann:pw@api.example.com/v1"}, "password"),
        ({"model": "gpt", "url": "https://api.example.com/v1?key=1"}, "without a query"),
        ({"model": "gpt", "url": "ftp://api.example.com"}, "not an http or https URL"),
    ],
)
def test_what_is_no_fallback(fallback: dict[str, str], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        spec(fallbacks=[fallback])
    spec(fallbacks=[{"model": "m", "url": "https://api.example.com/v1"}])
