"""Prometheus exposition of endpoints: statuses, replicas, and loads; zeros for endpoints that do
not serve."""

from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from moorage.common.model.reasons import Reason
from moorage.common.model.status import EndpointStatus, Status
from moorage.common.views.endpoints import EndpointView, LateSuccessor, ReplicaView
from moorage.manager.api.metering.exposition import exposition

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def replica(name: str, state: str, **load: float) -> ReplicaView:
    fields = {"session_id": name, "name": name, "status": Status.RUNNING, "state": state} | load
    return ReplicaView.model_validate(
        fields | {"reason": Reason.NONE, "detail": "", "agent_id": None, "status_since": NOW}
    )


def endpoint(
    name: str, status: EndpointStatus, *replicas: ReplicaView, **fields: object
) -> EndpointView:
    given = {
        "id": name,
        "name": name,
        "status": status,
        "replicas": 3,
        "ready": 1,
        "created_at": NOW,
    }
    return EndpointView.model_validate(given | {"sessions": list(replicas)} | fields)


def values(*views: EndpointView) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("moorage_endpoint_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(exposition(views).decode())
        for sample in family.samples
    }


def test_endpoint_with_replicas() -> None:
    found = values(
        endpoint(
            "m",
            EndpointStatus.DEGRADED,
            replica("m-1", "busy", running=4, waiting=2, kv_cache=0.5),
            replica("m-2", "loading"),
            replica("m-3", ""),
            waiting=5,
            scalings=7,
        )
    )
    status = {labels[2]: value for labels, value in found.items() if labels[0] == "status"}
    assert status == {one.value: float(one is EndpointStatus.DEGRADED) for one in EndpointStatus}
    assert (found["replicas_desired", "m"], found["replicas_ready", "m"]) == (3, 1)
    assert (found["waiting_requests", "m"], found["scaling_decisions_total", "m"]) == (5, 7)
    states = {labels[2]: value for labels, value in found.items() if labels[0] == "replicas"}
    assert states == {"queued": 0, "loading": 1, "ready": 0, "busy": 1, "draining": 0}
    loads = {labels[1:] for labels in found if labels[0] == "replica_running_requests"}
    assert loads == {("m", "m-1"), ("m", "m-2")}, "what has ended has no series"
    assert found["replica_kv_cache_usage_ratio", "m", "m-1"] == 0.5
    for name in ("running_requests", "waiting_requests", "kv_cache_usage_ratio"):
        assert found[f"replica_{name}", "m", "m-2"] == 0, "unreachable: zeros"


def test_shared_endpoint_has_no_series_of_replicas() -> None:
    found = values(endpoint("shared", EndpointStatus.READY))
    assert found["status", "shared", "ready"] == 1
    assert not [
        labels
        for labels in found
        if labels[0].startswith(("replicas", "replica_"))
        and labels[0] not in ("replicas_desired", "replicas_ready")
    ]


def test_endpoint_whose_successor_is_late() -> None:
    late = LateSuccessor(session_id="m-1", ends_at=NOW, expected_at=None)
    found = values(
        endpoint("m", EndpointStatus.READY, late_successor=late),
        endpoint("n", EndpointStatus.READY),
    )
    assert (found["successor_late", "m"], found["successor_late", "n"]) == (1, 0)
