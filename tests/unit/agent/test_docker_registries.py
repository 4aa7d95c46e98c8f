"""Registries from which a member's image may come."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from moorage.agent.runtimes import CreateFailed
from moorage.agent.runtimes.docker.registries import check_registry, system_resolve
from moorage.common.model.reasons import Reason

ADDRESSES = {
    "registry.example": ["93.184.215.14"],
    "internal.example": ["100.64.0.7"],
    "both.example": ["93.184.215.14", "127.0.0.1"],
}


async def resolve(host: str) -> Sequence[str]:
    if host.endswith(".invalid"):
        raise OSError("no such host")
    return ADDRESSES[host] if host in ADDRESSES else await system_resolve(host)


@pytest.mark.parametrize(
    ("image", "patterns"),
    [
        ("python:3", ["*"]),
        ("team/tool", ["*"]),
        ("docker.io/library/python", ["*"]),
        ("registry.example/team/tool:1", ["*"]),
        ("registry.example:5000/team/tool@sha256:00", ["*"]),
        ("unknown.invalid/team/tool", ["*"]),
        ("internal.example/team/tool", ["internal.example/team/*"]),
        ("internal.example:5000/team/tool", ["*", "internal.example:5000/*"]),
    ],
)
async def test_registries_that_are_asked(image: str, patterns: list[str]) -> None:
    await check_registry(image, patterns, resolve)


@pytest.mark.parametrize(
    ("image", "patterns"),
    [
        ("internal.example/team/tool", ["*"]),
        ("internal.example/team/tool", ["*.example/*"]),
        ("internal.example/other/tool", ["*", "internal.example/team/*"]),
        ("internal.example:5000/team/tool", ["*", "internal.example/*"]),
        ("both.example/tool", ["*"]),
        ("localhost/tool", ["*"]),
        ("localhost:5000/tool", ["*"]),
        ("127.0.0.1:5000/tool", ["*"]),
        ("127.1:5000/tool", ["*"]),
        ("169.254.169.254/latest/meta-data", ["*"]),
        ("[::1]:5000/tool", ["*"]),
        ("user:password@registry.example/tool", ["*"]),
    ],
)
async def test_registries_that_are_not(image: str, patterns: list[str]) -> None:
    with pytest.raises(CreateFailed, match=r"agent\.docker_images") as caught:
        await check_registry(image, patterns, resolve)
    assert (caught.value.reason, caught.value.clean) == (Reason.IMAGE_NOT_ALLOWED, True)
