"""Requests that are considered equal."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.common.model.reuse import MEANING, request_hash
from moorage.common.model.spec import SessionSpec

# When, where and how often a program runs, and its name.
WITHOUT_MEANING = frozenset(
    {
        "name",
        "user_labels",
        "resource_group",
        "priority",
        "reload",
        "checkpoint",
        "notify",
        "start_timeout_s",
        "stop_grace_s",
        "max_attempts",
        "agents",
        "preemptible",
        "overlap",
        "pending_timeout_s",
        "timeout_s",
        "max_lifetime_s",
        "qos",
        "queue_timeout_s",
        "walltime_s",
        "retries",
        "on_lost_agent",
        "lease_s",
        "retry_backoff_s",
        "dependency_failed",
        "starts_at",
        "reuse",
        "idle",
        "workspace",
        "probe",
        "tasks",  # such sessions reuse nothing
    }
)


def test_every_field_of_a_specification_has_a_meaning_or_none() -> None:
    assert SessionSpec.model_fields.keys() - MEANING - WITHOUT_MEANING == set(), (
        "decide whether it makes a difference"
    )
    assert not MEANING & WITHOUT_MEANING


def hashed(project: str = "speech", **fields: Any) -> str:
    spec = SessionSpec.model_validate({"command": ["train"], "env": {"A": "1", "B": "2"}} | fields)
    return request_hash(spec.model_dump(mode="json"), project)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "other"},
        {"priority": 90},
        {"env": {"B": "2", "A": "1"}},
        {"retries": 3},
        {"user_labels": {"run": "7"}},
        {"reuse": "both"},
    ],
)
def test_equal(fields: dict[str, Any]) -> None:
    assert hashed(**fields) == hashed()


@pytest.mark.parametrize(
    "fields",
    [
        {"project": "vision"},
        {"command": ["train", "--fast"]},
        {"env": {"A": "1"}},
        {"resources": {"cpu": 2, "mem": "1GiB"}},
        {"secret_env": {"TOKEN": "token"}},
        {"runtime": "docker", "image": "python:3.11"},
        {"depends_on": ["data"]},
        {"ports": [{"name": "ui"}]},
    ],
)
def test_different(fields: dict[str, Any]) -> None:
    assert hashed(**fields) != hashed()
