"""Validation of a session's image."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    "image",
    [
        "python",
        "python:3.12-slim",
        "registry.example.com:5000/a/b_c:1",
        f"a/b@{DIGEST}",
        f"a:1@{DIGEST}",
    ],
)
def test_image_references_are_accepted(image: str) -> None:
    spec = SessionSpec(runtime="docker", image=image, command=["true"])
    assert SessionSpec.model_validate(spec.model_dump()) == spec


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"runtime": "docker"}, "requires `image`"),
        ({"runtime": "process", "image": "python"}, "requires runtime 'docker', not 'process'"),
        ({"image": "python"}, "requires runtime 'docker'"),
        ({"runtime": "docker", "image": "-v/:/host"}, "image"),
        ({"runtime": "docker", "image": "a b"}, "image"),
        ({"runtime": "docker", "image": "python\n"}, "image"),
        ({"runtime": "docker", "image": "a@sha256:1"}, "image"),
        ({"runtime": "docker", "image": "a" * 513}, "image"),
        ({"runtime": "docker", "image": ""}, "image"),
        (
            {"runtime": "podman", "image": "python"},
            "'process', 'docker', 'slurm', 'heappe', 'celery', 'fake' or 'custom:NAME'",
        ),
    ],
)
def test_invalid_images_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SessionSpec.model_validate({"command": ["true"]} | given)


def test_vllm_container_needs_no_image() -> None:
    spec = EndpointSpec(name="e", engine="vllm", model="org/model", runtime="docker")
    assert spec.session("e-1").image is None


def test_replicas_inherit_the_image() -> None:
    spec = EndpointSpec(name="e", runtime="docker", image="img:1", command=["serve"], probe=Probe())
    replica = spec.session("e-1")
    assert (replica.runtime, replica.image) == ("docker", "img:1")
