"""Validation of cluster specifications."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from moorage.common.model.spec import SessionSpec


def spec(cluster: dict[str, Any], **fields: Any) -> SessionSpec:
    return SessionSpec.model_validate({"command": ["x"], "cluster": cluster} | fields)


def test_defaults() -> None:
    cluster = spec({"size": 4}).cluster
    assert cluster is not None
    assert (cluster.mode, cluster.on_kernel_loss, cluster.sub) == ("single-node", "end", None)
    assert spec({"size": 4}).size == 4
    assert SessionSpec(command=["x"]).size == 1
    assert spec({"size": 1, "mode": "multi-node"}).cluster is None


@pytest.mark.parametrize(
    ("cluster", "fields", "message"),
    [
        ({"size": 0}, {}, "greater than or equal to 1"),
        ({"size": 129}, {}, "less than or equal to 128"),
        ({"size": 2, "mode": "ring"}, {}, "single-node"),
        ({"size": 2, "on_kernel_loss": "pray"}, {}, "degrade"),
        ({"size": 2, "roles": {}}, {}, "Extra inputs"),
        ({"mode": "multi-node"}, {}, "size"),
        (
            {"size": 2},
            {"engine": "vllm", "model": "m", "command": [], "type": "inference"},
            "engine 'custom'",
        ),
        ({"size": 2, "sub": {"image": "img:1"}}, {}, "cluster.sub.image"),
        ({"size": 2, "sub": {"command": [""]}}, {}, "cluster.sub.command"),
        ({"size": 2, "sub": {"resources": {"cpu": -1}}}, {}, "cpu"),
        ({"size": 2, "sub": {"env": {"MOORAGE_X": "1"}}}, {}, "MOORAGE_"),
        ({"size": 3, "mode": "multi-node"}, {"agents": ["a", "b"]}, "lists 2"),
    ],
)
def test_invalid_clusters_are_refused(
    cluster: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        spec(cluster, **fields)
