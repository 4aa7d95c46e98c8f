"""The fake manager, used by tests of the client and the command line, answers like the API over
Postgres."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from .served_api import ADMIN_KEY, MEMBER_KEY, Api

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "sdk"))

from fake_manager import FakeManager

BATCH = {"name": "job", "command": ["true"]}
MODEL = {"name": "team/m", "engine": "vllm", "model": "one", "env": {"A": "1"}}
# Only the types of these fields are compared, because their values depend on the time or are
# random.
DRAWN = {"id", "session_id", "secret", "prefix", "next", "at", "asked_at", "version"}
DRAWN |= {"created_at", "status_since", "changed_at"}
# The fake does not record when a key was used.
LEFT_OUT = {"last_used_at"}


@dataclass(frozen=True)
class Ask:
    """``member``: use the key of a member of another project. ``if_match``: which of the versions
    returned so far to use."""

    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    if_match: int | None = None
    member: bool = False


ONCE = {"Idempotency-Key": "once"}
SCENES: dict[str, list[Ask]] = {
    "sessions": [
        Ask("POST", "/v1/sessions", BATCH),
        Ask("POST", "/v1/sessions", BATCH),
        Ask("POST", "/v1/sessions", {"name": "bad"}),
        Ask("GET", "/v1/sessions/job"),
        Ask("GET", "/v1/sessions/job", member=True),
        Ask("GET", "/v1/sessions/none"),
        Ask("PATCH", "/v1/sessions/job", {"user_labels": {"a": "1", "b": "2"}}),
        Ask("PATCH", "/v1/sessions/job", {"name": "renamed", "user_labels": {"b": None}}),
        Ask("POST", "/v1/sessions", {"name": "lab", "type": "interactive", "priority": 20}),
        Ask("GET", "/v1/sessions"),
        Ask("GET", "/v1/sessions?type=interactive&status=pending"),
        Ask("GET", "/v1/sessions?selector=a%3D1"),
        Ask("GET", "/v1/sessions?limit=1"),
        Ask("GET", "/v1/sessions", member=True),
        Ask("DELETE", "/v1/sessions/renamed"),
        Ask("POST", "/v1/sessions/renamed/stop"),
        Ask("POST", "/v1/sessions/renamed/stop"),
        Ask("GET", "/v1/sessions/renamed/history"),
        Ask("DELETE", "/v1/sessions/renamed"),
        Ask("GET", "/v1/sessions/renamed"),
        Ask("POST", "/v1/sessions/stop"),
    ],
    "repeated creations": [
        Ask("POST", "/v1/sessions", BATCH, ONCE),
        Ask("POST", "/v1/sessions", BATCH, ONCE),
        Ask("POST", "/v1/sessions", BATCH | {"priority": 3}, ONCE),
        Ask("POST", "/v1/endpoints", MODEL, {"Idempotency-Key": "another"}),
        Ask("POST", "/v1/endpoints", MODEL, {"Idempotency-Key": "another"}),
    ],
    "endpoints": [
        Ask("POST", "/v1/endpoints", MODEL),
        Ask("POST", "/v1/endpoints", MODEL),
        Ask("GET", "/v1/endpoints/team%2Fm"),
        Ask("GET", "/v1/endpoints/none"),
        Ask("PATCH", "/v1/endpoints/team%2Fm", {"model": "two"}, if_match=-1),
        Ask("PATCH", "/v1/endpoints/team%2Fm", {"model": "three"}, if_match=0),
        Ask("PATCH", "/v1/endpoints/team%2Fm", {"user_labels": {"a": "1"}}),
        Ask("GET", "/v1/endpoints/team%2Fm/revisions"),
        Ask("POST", "/v1/endpoints/team%2Fm/scale", {"replicas": 3}),
        Ask("POST", "/v1/endpoints/team%2Fm/rollout/promote"),
        Ask("GET", "/v1/endpoints?selector=a%3D1"),
        Ask("DELETE", "/v1/endpoints/team%2Fm"),
        Ask("DELETE", "/v1/endpoints/team%2Fm"),
    ],
    "keys": [
        Ask("POST", "/v1/keys", {"name": "ci", "project": "lovelace"}),
        Ask("POST", "/v1/keys", {"name": "ci", "project": "lovelace"}),
        Ask("GET", "/v1/keys/ci"),
        Ask("PATCH", "/v1/keys/ci", {"max_priority": 5}),
        Ask("POST", "/v1/keys/ci/rotate", {}),
        Ask("GET", "/v1/keys"),
        Ask("GET", "/v1/keys", member=True),
        Ask("DELETE", "/v1/keys/ci"),
        Ask("DELETE", "/v1/keys/ci"),
        Ask("DELETE", "/v1/keys/root"),
    ],
    "groups and quotas": [
        Ask("PUT", "/v1/groups/gpu", {"hol": "strict"}),
        Ask("GET", "/v1/groups/gpu"),
        Ask("GET", "/v1/groups"),
        Ask("GET", "/v1/groups/none"),
        Ask("PUT", "/v1/quotas/user/ada", {"sessions": 2, "slots": {"cpu": 1}}),
        Ask("PUT", "/v1/quotas/user/ada", {"sessions": 3}, if_match=-1),
        Ask("PUT", "/v1/quotas/user/ada", {"sessions": 4}, if_match=0),
        Ask("GET", "/v1/quotas"),
        Ask("DELETE", "/v1/quotas/user/ada"),
        Ask("DELETE", "/v1/quotas/user/ada"),
    ],
    "secrets": [
        Ask("PUT", "/v1/secrets/hf", {"value": "hunter2"}),
        Ask("PUT", "/v1/secrets/hf", {"value": "hunter3"}),
        Ask("GET", "/v1/secrets"),
        Ask("GET", "/v1/secrets", member=True),
        Ask("POST", "/v1/sessions", BATCH | {"secret_env": {"T": "absent"}}),
        Ask("DELETE", "/v1/secrets/hf"),
        Ask("DELETE", "/v1/secrets/hf"),
    ],
}


def _comparable(found: Any, name: str = "") -> Any:
    if isinstance(found, dict):
        return {key: _comparable(value, key) for key, value in found.items() if key not in LEFT_OUT}
    if isinstance(found, list):
        return [_comparable(one, name) for one in found]
    return type(found).__name__ if name in DRAWN else found


class Asked:
    """One server and the versions that it has returned."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._tags: list[str] = []

    async def answer(self, ask: Ask) -> Any:
        """The comparable parts. For a refusal, this is only its type, because the texts come from
        the store."""
        headers = {
            "Authorization": f"Bearer {MEMBER_KEY if ask.member else ADMIN_KEY}"
        } | ask.headers
        if ask.if_match is not None:
            headers["If-Match"] = self._tags[ask.if_match]

        async with self._http.request(
            ask.method, ask.path, json=ask.body, headers=headers
        ) as response:
            found = await response.json(content_type=None)
            tag = response.headers.get("ETag")
            replayed = response.headers.get("Idempotent-Replayed")

        if tag is not None:
            self._tags.append(tag)
        if response.status >= 400:
            return response.status, found["code"]

        return response.status, tag is not None, replayed, _comparable(found)


@pytest.fixture
async def fake() -> AsyncIterator[aiohttp.ClientSession]:
    with FakeManager() as manager:
        manager.next_session(script=[])
        manager.store.endpoints.starts_replicas = False
        async with aiohttp.ClientSession(manager.url) as http:
            yield http


@pytest.mark.parametrize("scene", SCENES)
async def test_fake_answers_as_the_api(api: Api, fake: aiohttp.ClientSession, scene: str) -> None:
    answer_of_api = Asked(api.http).answer
    answer_of_fake = Asked(fake).answer
    for ask in SCENES[scene]:
        expected = await answer_of_api(ask)
        assert await answer_of_fake(ask) == expected, f"{ask.method} {ask.path}"
