"""Session types and their features: the single table behind validation, the reference and tests.

Pure data. ``FIELDS`` maps each field of a specification to its feature; a type without that feature
refuses the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from moorage.common.model.status import SessionType


class Feature(StrEnum):
    """A capability that sessions of some types have."""

    CODE_EXECUTION = "code-execution"
    SERVICE_PORTS = "service-ports"
    CLUSTERS = "clusters"
    DEPENDENCIES = "dependencies"
    START_AFTER = "start-after"
    BEGIN_TIME = "begin-time"
    RESULT = "result"
    TIMEOUT = "timeout"
    RETRIES = "retries"
    LOST_AGENT = "lost-agent-policy"
    REUSE = "reuse"
    TASKS = "tasks"
    MODEL_ENGINES = "model-engines"
    DEVICES = "devices"
    IDLE_PROGRAM = "idle-program"
    IDLE_CRITERIA = "idle-criteria"
    RELOAD = "reload"
    QOS = "qos"
    LEDGER = "ledger"


TEXTS: Mapping[Feature, str] = {
    Feature.CODE_EXECUTION: (
        "code runs in a kernel of its language and keeps its state between calls"
    ),
    Feature.SERVICE_PORTS: "`ports`: apps behind the proxy",
    Feature.CLUSTERS: "`cluster`: several kernels, main1, sub1, …",
    Feature.DEPENDENCIES: "`depends_on`: other sessions must end as required; a pipeline's step",
    Feature.START_AFTER: (
        "`depends_on` orders the start only: nothing can depend on the session's success"
    ),
    Feature.BEGIN_TIME: "`starts_at`: the earliest start",
    Feature.RESULT: "SUCCESS or FAILED, by the exit code of the main program",
    Feature.TIMEOUT: "`timeout_s`: the longest run of the program",
    Feature.RETRIES: "`retries`: a program that failed runs again",
    Feature.LOST_AGENT: "`on_lost_agent`: what happens to the program when its agent is lost",
    Feature.REUSE: "`reuse`: the result or the run of an equal session is used instead",
    Feature.TASKS: "`tasks`: the command runs once for each task of a list",
    Feature.MODEL_ENGINES: "`engine` vllm or llamacpp: serves `model`",
    Feature.DEVICES: "`resources` with GPUs and other devices",
    Feature.IDLE_PROGRAM: "may run without a `command`",
    Feature.IDLE_CRITERIA: "`idle`: ends when nobody uses it",
    Feature.RELOAD: "`reload`: `moorage reload` asks the program to read its settings again",
    Feature.QOS: "`qos`: a quality of service sets priority, limits and a factor on prices",
    Feature.LEDGER: "its usage is recorded in the ledger",
}

_ALL = frozenset({Feature.SERVICE_PORTS, Feature.CLUSTERS, Feature.RELOAD, Feature.LEDGER})
_COMPUTE = _ALL | {Feature.DEVICES}
FEATURES: Mapping[SessionType, frozenset[Feature]] = {
    SessionType.INTERACTIVE: _COMPUTE
    | {
        Feature.CODE_EXECUTION,
        Feature.START_AFTER,
        Feature.IDLE_PROGRAM,
        Feature.IDLE_CRITERIA,
        Feature.QOS,
    },
    SessionType.BATCH: _COMPUTE
    | {
        Feature.DEPENDENCIES,
        Feature.BEGIN_TIME,
        Feature.RESULT,
        Feature.TIMEOUT,
        Feature.RETRIES,
        Feature.LOST_AGENT,
        Feature.REUSE,
        Feature.QOS,
        Feature.TASKS,
    },
    SessionType.INFERENCE: _COMPUTE | {Feature.START_AFTER, Feature.MODEL_ENGINES},
    SessionType.SYSTEM: _ALL | {Feature.START_AFTER, Feature.IDLE_PROGRAM, Feature.IDLE_CRITERIA},
}

# Features in the table that this release lacks, each with an alternative for the time being.
PLANNED: Mapping[Feature, str] = {}

# Fields of a session's specification, each with the feature that it needs and an alternative to it.
FIELDS: Mapping[str, tuple[Feature, str]] = {
    "tasks": (Feature.TASKS, "only they have a result"),
    "timeout_s": (Feature.TIMEOUT, "use `max_lifetime_s`"),
    "retries": (Feature.RETRIES, "only they have a result"),
    "on_lost_agent": (Feature.LOST_AGENT, "other sessions end with their agent"),
    "reuse": (Feature.REUSE, "only they have a result"),
    "starts_at": (Feature.BEGIN_TIME, "create other sessions when they are needed"),
    "qos": (Feature.QOS, "other sessions have none"),
    "idle": (Feature.IDLE_CRITERIA, "use `max_lifetime_s`"),
}


def types_with(feature: Feature) -> list[SessionType]:
    """Session types that have a feature, in table order."""
    return [kind for kind, features in FEATURES.items() if feature in features]


def find_problem(kind: SessionType, given: Iterable[str]) -> str | None:
    """Describe the first field of ``given`` whose feature the type lacks; None if there is none.

    ``given``: the fields that differ from their defaults.
    """
    for field in given:
        feature, instead = FIELDS.get(field, (None, ""))
        if feature is not None and feature not in FEATURES[kind]:
            types = " and ".join(map(str, types_with(feature)))
            return f"`{field}` applies to {types} sessions; {instead}"

    return None


def warnings(kind: SessionType, given: Iterable[str]) -> list[str]:
    """Describe the fields of ``given`` that the type accepts but that have less effect for it."""
    if "depends_on" in given and Feature.START_AFTER in FEATURES[kind]:
        return [
            f"`depends_on` only orders the start of {kind} sessions: they have no result of their "
            "own"
        ]
    return []


# Computed once, because this check runs for every specification that is read.
_PLANNED_FIELDS = {
    field: PLANNED[feature] for field, (feature, _) in FIELDS.items() if feature in PLANNED
}


def refuse_planned(given: Any) -> Any:
    """Raise ``ValueError`` if ``given``, the fields of a request, needs a feature that is not
    built."""
    if not isinstance(given, dict):
        return given
    for field, instead in _PLANNED_FIELDS.items():
        if field in given:
            raise ValueError(f"`{field}` is not available in this release; {instead}")
    return given


def document() -> Iterator[str]:
    """Lines of the reference page on session types."""
    yield "# Session types and their features"
    yield ""
    yield "A specification with a field that its type does not have is rejected."
    yield ""
    yield f"| feature | {' | '.join(FEATURES)} | |"
    yield f"|---|{'---|' * len(FEATURES)}---|"

    for feature in Feature:
        cell = "planned" if feature in PLANNED else "yes"
        cells = [cell if feature in features else "–" for features in FEATURES.values()]
        yield f"| {feature} | {' | '.join(cells)} | {TEXTS[feature]} |"

    yield ""
    yield (
        "* System sessions hold no devices, count against `system_sessions` of quotas only, are not"
    )
    yield (
        "  preempted and preempt nothing, and cost nothing unless a price names them. A "
        "resource group"
    )
    yield "  allows them by name, in `session_types`. They are for programs near the data of a node"
    yield "  (`docs/ssh.md`)."
    for feature, instead in PLANNED.items():
        yield f"* {feature} is planned, not built: {instead}."
