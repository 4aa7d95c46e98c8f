"""Every cell in the table of session types and features, as applied by validation."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from moorage.common.model import features
from moorage.common.model.features import FEATURES, FIELDS, PLANNED, Feature
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType

TRIES: dict[Feature, dict[str, Any]] = {
    Feature.SERVICE_PORTS: {"ports": [{"name": "web"}]},
    Feature.CLUSTERS: {"cluster": {"size": 2}},
    Feature.BEGIN_TIME: {"starts_at": "2100-01-01T00:00:00Z"},
    Feature.TIMEOUT: {"timeout_s": 60},
    Feature.RETRIES: {"retries": 1},
    Feature.LOST_AGENT: {"on_lost_agent": "wait"},
    Feature.REUSE: {"reuse": "both"},
    Feature.TASKS: {"tasks": {"lines": "a"}, "probe": None},
    Feature.MODEL_ENGINES: {"engine": "vllm", "model": "m", "command": []},
    Feature.DEVICES: {"resources": {"cuda.device": 1}},
    Feature.IDLE_PROGRAM: {"command": []},
    Feature.IDLE_CRITERIA: {"idle": {}},
    Feature.QOS: {"qos": "debug"},
}
BASE: dict[str, Any] = {"command": ["true"], "probe": {}}


@pytest.mark.parametrize("kind", SessionType)
@pytest.mark.parametrize("feature", TRIES)
def test_validation_follows_the_table(kind: SessionType, feature: Feature) -> None:
    def make() -> SessionSpec:
        return SessionSpec.model_validate(BASE | {"type": kind} | TRIES[feature])

    if feature in FEATURES[kind] and feature not in PLANNED:
        make()
    else:
        with pytest.raises(ValidationError):
            make()


@pytest.mark.parametrize("field", FIELDS)
def test_a_refused_field_is_named_with_the_types_that_have_it(field: str) -> None:
    feature, _ = FIELDS[field]
    with pytest.raises(ValidationError, match=f"`{field}`") as refused:
        SessionSpec.model_validate(BASE | {"type": "inference"} | TRIES[feature])
    types = " and ".join(features.types_with(feature))
    planned = feature in PLANNED
    assert ("not available in this release" if planned else f"applies to {types} sessions") in str(
        refused.value
    )


def test_every_type_has_dependencies_or_start_after() -> None:
    for kind, found in FEATURES.items():
        assert len(found & {Feature.DEPENDENCIES, Feature.START_AFTER}) == 1
        assert bool(features.warnings(kind, ["depends_on"])) == (Feature.START_AFTER in found)
        assert features.warnings(kind, []) == []


def test_the_document_has_a_row_for_every_feature() -> None:
    page = "\n".join(features.document())
    assert all(f"| {feature} |" in page for feature in Feature)
    assert set(FEATURES) == set(SessionType)
    assert set(features.TEXTS) == set(Feature)


@pytest.mark.parametrize("resources", [{"cuda.device": 1}, {"cpu": 1, "rocm.shares": "0.5"}])
def test_a_system_session_holds_no_devices(resources: dict[str, Any]) -> None:
    system = BASE | {"type": "system"}
    device = next(slot for slot in resources if "." in slot)
    with pytest.raises(
        ValidationError, match=f"system sessions hold no devices: remove '{device}' from"
    ):
        SessionSpec.model_validate(system | {"resources": resources})
    cluster = {"size": 2, "sub": {"resources": resources}}
    with pytest.raises(ValidationError, match="hold no devices"):
        SessionSpec.model_validate(system | {"resources": {"cpu": 1}, "cluster": cluster})
