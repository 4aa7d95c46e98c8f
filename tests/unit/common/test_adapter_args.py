"""Adapters in endpoint specifications and in the arguments of replicas."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from moorage.common.model.adapters import adapters_in
from moorage.common.model.spec import EndpointSpec

SQL = {"name": "sql", "source": "/loras/a=b,c"}


def spec(*adapters: dict[str, str], **more: Any) -> EndpointSpec:
    fields = {
        "name": "m",
        "engine": "vllm",
        "model": "org/model",
        "adapters": list(adapters),
        **more,
    }
    return EndpointSpec.model_validate(fields)


def test_a_replica_is_told_to_load_them() -> None:
    args = (
        spec(SQL, {"name": "chat", "source": "org/chat"}, args=["--max-loras", "2"])
        .session("m-1")
        .args
    )
    assert args[:3] == ["--max-loras", "2", "--enable-lora"]
    assert args[4] == '{"name": "m:sql", "path": "/loras/a=b,c", "base_model_name": "m"}'
    assert adapters_in(args) == ("m:sql", "m:chat")


def test_without_adapters_nothing_changes() -> None:
    made = spec()
    assert made.session("m-1").args == []
    assert "adapters" not in made.template()
    assert adapters_in(made.args) == ()


@pytest.mark.parametrize(
    "args",
    [
        ["--lora-modules", "sql=/x"],
        ["--lora-modules", "{"],
        ["--lora-modules", "{}"],
        ["--lora-modules"],
    ],
)
def test_what_users_write_themselves_is_no_adapter(args: list[str]) -> None:
    assert adapters_in(args) == ()


def test_a_change_makes_a_new_revision() -> None:
    assert spec().template() != spec(SQL).template()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"adapters": [SQL, SQL]}, "two entries with the name 'sql'"),
        ({"adapters": [{"name": "a:b", "source": "x"}]}, "pattern"),
        ({"adapters": [{"name": "a", "source": ""}]}, "at least 1 character"),
        ({"adapters": [SQL], "engine": "llamacpp", "model": "/m.gguf"}, "requires engine 'vllm'"),
    ],
)
def test_what_is_no_adapter(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        spec(**fields)
