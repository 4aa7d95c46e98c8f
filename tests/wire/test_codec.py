"""Wire codecs: round trips of every message, and tolerance of values from newer peers."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.link import codec, usage_codec
from moorage.common.link import messages as m
from moorage.common.link.field_codec import codec as codec_of
from moorage.common.link.pb import agent_pb2
from moorage.common.model import resource_usage as u
from moorage.common.model.cluster import ClusterMember, ClusterMembership
from moorage.common.model.kernel import (
    DeviceGrant,
    DoubtfulJob,
    HpcJob,
    KernelInput,
    KernelReload,
    KernelSpec,
    KernelTasks,
    Reloaded,
    SiteNodes,
)
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.service_ports import AppPort, ServicePort
from moorage.common.model.status import ObservedState, SessionType

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
INTEGERS = st.integers(0, 2**53)
# Binary fractions, because times are encoded as doubles.
SECONDS = st.integers(0, 2**30).map(lambda eighths: eighths / 8)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
LABELS = st.dictionaries(TEXT, TEXT, max_size=3)
PORTS = st.integers(0, 65535)

OFFERS = st.builds(
    m.SlotOffer,
    slot=TEXT,
    capacity=INTEGERS,
    device_id=TEXT,
    model=TEXT,
    memory_bytes=INTEGERS,
    healthy=st.booleans(),
    numa=st.none() | st.integers(0, 63),
    nvlink_domain=TEXT,
    parent=TEXT,
    unhealthy_reason=TEXT,
)
RUNTIMES = st.builds(
    m.RuntimeState, name=TEXT, listed=st.booleans(), silence_grace_s=st.floats(0, 1e7)
)
DOUBTFUL_JOBS = st.builds(
    DoubtfulJob, runtime=TEXT, name=TEXT, job_id=TEXT, since=SECONDS, why=TEXT, tried=TEXT
)
NODES = st.integers(0, 2**32 - 1)
SITE_NODES = st.builds(SiteNodes, name=TEXT, used=NODES, total=NODES)
INFOS = st.builds(
    m.AgentInfo,
    agent_id=TEXT,
    resource_group=TEXT,
    address=TEXT,
    version=TEXT,
    arch=TEXT,
    runtimes=TEXTS,
    engines=TEXTS,
    offers=st.lists(OFFERS, max_size=3).map(tuple),
    labels=LABELS,
    identity=TEXT,
    max_kernels=st.none() | st.integers(1, 2**31 - 1),
    share_quantum=st.integers(1, 1000),
    share_minimum=st.integers(1, 1000),
    lease_runtimes=TEXTS,
    report_interval_s=st.floats(0, 1e6),
    runtime_states=st.lists(RUNTIMES, max_size=3).map(tuple),
    doubtful_jobs=st.lists(DOUBTFUL_JOBS, max_size=3).map(tuple),
    site_nodes=st.lists(SITE_NODES, max_size=3).map(tuple),
    reach=TEXT,
    undialed=LABELS,
    not_ready=TEXT,
    suspend_runtimes=TEXTS,
)
APPS = st.builds(
    AppPort,
    name=TEXT,
    port=PORTS,
    protocol=st.sampled_from(["http", "tcp"]),
    base_path=st.booleans(),
    inner=PORTS,
    guarded=st.booleans(),
)
OBSERVATIONS = st.builds(
    m.Observation,
    kernel_id=TEXT,
    session_id=TEXT,
    state=st.sampled_from(ObservedState),
    host=TEXT,
    port=PORTS,
    exit_code=st.none() | st.integers(-64, 255),
    reason=st.sampled_from(Reason),
    detail=TEXT,
    log_tail=TEXT,
    apps=st.lists(APPS, max_size=3).map(tuple),
    unhealthy=TEXT,
    expected_start=SECONDS,
    ends_at=SECONDS,
    kept_until=SECONDS,
    reload=st.none()
    | st.builds(
        Reloaded,
        generation=INTEGERS,
        outcome=st.sampled_from(["reloaded", "failed", "timed-out"]),
        detail=TEXT,
    ),
)
REPORTS = st.builds(
    m.Report,
    info=INFOS,
    incarnation=TEXT,
    orders_generation=INTEGERS,
    kernels=st.lists(OBSERVATIONS, max_size=3).map(tuple),
    draining=st.booleans(),
    orders_wanted=st.booleans(),
    stream=INTEGERS,
    newest_generation=INTEGERS,
    sent_at=st.integers(0, 2**63),
)
REPORT_DELTAS = st.builds(
    m.ReportDelta,
    incarnation=TEXT,
    orders_generation=INTEGERS,
    kernels=st.lists(OBSERVATIONS, max_size=3).map(tuple),
    removed=st.frozensets(TEXT, max_size=3),
    info=st.none() | INFOS,
    draining=st.booleans(),
    orders_wanted=st.booleans(),
    sent_at=st.integers(0, 2**63),
)
MEMBERSHIPS = st.builds(
    ClusterMembership,
    hostname=TEXT,
    role=st.sampled_from(["main", "sub"]),
    index=st.integers(1, 2**31 - 1),
    mode=st.sampled_from(["single-node", "multi-node"]),
    group=TEXT,
    members=st.lists(st.builds(ClusterMember, hostname=TEXT, address=TEXT), max_size=3).map(tuple),
    private_key=TEXT,
    public_key=TEXT,
)
KERNELS = st.builds(
    KernelSpec,
    kernel_id=TEXT,
    session_id=TEXT,
    session_name=TEXT,
    session_type=st.sampled_from(SessionType),
    runtime=TEXT,
    engine=TEXT,
    served_name=TEXT,
    model=TEXT,
    args=TEXTS,
    command=TEXTS,
    env=LABELS,
    probe_path=TEXT,
    probe_period_s=SECONDS,
    slots=st.dictionaries(TEXT, INTEGERS, max_size=3),
    devices=st.lists(
        st.builds(DeviceGrant, slot=TEXT, device_id=TEXT, amount=INTEGERS), max_size=3
    ).map(tuple),
    secret=TEXT,
    start_timeout_s=SECONDS,
    stop_grace_s=SECONDS,
    endpoint_id=st.none() | TEXT.filter(bool),
    image=TEXT,
    container_user=TEXT,
    workspace=st.sampled_from(["", "keep", "drop"]),
    lease_s=SECONDS,
    isolated=st.booleans(),
    hpc=st.none()
    | st.builds(
        HpcJob,
        cluster=TEXT,
        node_type=TEXT,
        project=TEXT,
        template=TEXT,
        partition=TEXT,
        qos=TEXT,
        account=TEXT,
        walltime_s=SECONDS,
        options=st.dictionaries(TEXT, TEXT, max_size=2),
    ),
    reload=st.none()
    | st.builds(
        KernelReload,
        signal=TEXT,
        path=TEXT,
        port=TEXT,
        acknowledge=st.sampled_from(["handler", "progress"]),
        timeout_s=SECONDS,
    ),
    reload_generation=INTEGERS,
    traceparent=TEXT,
    checkpoint_signal=TEXT,
    checkpoint_grace_s=SECONDS,
    attempt=st.integers(0, 2**31 - 1),
    user=TEXT,
    project=TEXT,
    time_limit_s=SECONDS,
    suspended=st.booleans(),
    tasks=st.none()
    | st.builds(KernelTasks, command=TEXTS, workers=st.integers(0, 1024), timeout_s=SECONDS),
    cluster=st.none() | MEMBERSHIPS,
    outputs=TEXTS,
    inputs=st.lists(
        st.builds(KernelInput, session_id=TEXT, output=TEXT, path=TEXT), max_size=2
    ).map(tuple),
    ports=st.lists(
        st.builds(
            ServicePort,
            name=TEXT,
            port=PORTS,
            protocol=st.sampled_from(["http", "tcp"]),
            base_path=st.booleans(),
            guarded=st.booleans(),
        ),
        max_size=3,
    ).map(tuple),
)
ORDERS = st.builds(m.Orders, generation=INTEGERS, kernels=st.lists(KERNELS, max_size=3).map(tuple))
ORDERS_DELTAS = st.builds(
    m.OrdersDelta,
    generation=INTEGERS,
    base=INTEGERS,
    added=st.lists(KERNELS, max_size=3).map(tuple),
    withdrawn=st.frozensets(TEXT, max_size=3),
    digest=INTEGERS,
)
LOG_REQUESTS = st.builds(
    m.LogRequest, request_id=TEXT, kernel_id=TEXT, tail_lines=st.integers(0, 10**6), follow=st.booleans(),
    offset=st.none() | st.integers(0, 2**63),
    output=TEXT, session_id=TEXT, timestamps=st.booleans(), since_ms=st.integers(0, 10**13),
)  # fmt: skip
EXEC_REQUESTS = st.builds(
    m.ExecRequest,
    request_id=TEXT,
    kernel_id=TEXT,
    command=TEXTS,
    tty=st.booleans(),
    stdin=st.booleans(),
    rows=st.integers(0, 65535),
    cols=st.integers(0, 65535),
    env=LABELS,
    code=TEXT,
    files=TEXT,
    path=TEXT,
    name=TEXT,
)
WORKSPACE_REQUESTS = st.builds(m.WorkspaceRequest, request_id=TEXT, remove=TEXT)
USES = st.builds(
    u.Use, **dict.fromkeys(("cpu", "memory"), INTEGERS),
    **dict.fromkeys(("rx", "tx", "gpu", "gpu_memory"), st.none() | INTEGERS),
)  # fmt: skip
KERNEL_USES = st.builds(u.KernelUse, kernel_id=TEXT, use=USES)
KERNEL_MINUTES = st.builds(
    u.KernelMinute, kernel_id=TEXT, at=INTEGERS, samples=st.integers(0, 2**31), mean=USES, peak=USES
)
DEVICE_USES = st.builds(
    u.DeviceUse,
    device_id=TEXT,
    memory=INTEGERS,
    gpu=st.none() | INTEGERS,
    temperature=st.none() | st.integers(-40, 200),
    power=st.none() | INTEGERS,
)
ENGINE_USES = st.builds(
    u.EngineUse,
    kernel_id=TEXT,
    running=st.integers(0, 1 << 31),
    waiting=st.integers(0, 1 << 31),
    kv_cache=st.none() | st.integers(0, 1000),
    max_model_len=st.none() | st.integers(0, 1 << 31),
)
PROGRESS = st.builds(
    u.KernelProgress,
    kernel_id=TEXT,
    fraction=st.none() | st.floats(0, 1),
    step=st.none() | INTEGERS,
    of=st.none() | INTEGERS,
    message=TEXT,
    problem=TEXT,
)
USAGE_REPORTS = st.builds(
    u.UsageReport,
    agent_id=TEXT,
    incarnation=TEXT,
    cpu=INTEGERS,
    memory=INTEGERS,
    kernels=st.lists(KERNEL_USES, max_size=3).map(tuple),
    devices=st.lists(DEVICE_USES, max_size=3).map(tuple),
    minutes=st.lists(KERNEL_MINUTES, max_size=3).map(tuple),
    engines=st.lists(ENGINE_USES, max_size=3).map(tuple),
    progress=st.lists(PROGRESS, max_size=3).map(tuple),
)


@given(USAGE_REPORTS)
def test_usage_round_trip(report: u.UsageReport) -> None:
    wire = agent_pb2.UsageReport.FromString(usage_codec.usage_to_wire(report).SerializeToString())
    assert usage_codec.usage_from_wire(wire) == report


@given(REPORTS | REPORT_DELTAS)
def test_report_round_trip(report: m.Report | m.ReportDelta) -> None:
    wire = agent_pb2.Report.FromString(codec.report_to_wire(report).SerializeToString())
    assert codec.report_from_wire(wire) == report


@given(
    ORDERS
    | ORDERS_DELTAS
    | LOG_REQUESTS
    | EXEC_REQUESTS
    | WORKSPACE_REQUESTS
    | st.builds(m.FullReportRequest, st.booleans(), st.text(max_size=5))
)
def test_manager_message_round_trip(message: codec.ManagerMessage) -> None:
    wire = agent_pb2.ManagerMessage.FromString(
        codec.manager_message_to_wire(message).SerializeToString()
    )
    assert codec.manager_message_from_wire(wire) == message


@pytest.mark.parametrize(
    "strategy",
    [
        *(OFFERS, INFOS, OBSERVATIONS, REPORTS, REPORT_DELTAS, KERNELS, ORDERS, ORDERS_DELTAS),
        *(LOG_REQUESTS, EXEC_REQUESTS, WORKSPACE_REQUESTS),
        *(USES, KERNEL_USES, KERNEL_MINUTES, DEVICE_USES, ENGINE_USES, PROGRESS, USAGE_REPORTS),
    ],
)
def test_strategies_cover_every_field(strategy: st.SearchStrategy[object]) -> None:
    """A field with a default is easily omitted from a strategy, and then its round trip would not
    be tested."""
    builds = strategy.wrapped_strategy  # type: ignore[attr-defined]
    assert set(builds.kwargs) == {field.name for field in fields(builds.target)}


OBSERVED = m.Observation("k", "s", ObservedState.RUNNING)  # type: ignore[arg-type]
REPORT = m.Report(
    m.AgentInfo(
        "a", "default", address="h", version="1", arch="x86_64", runtimes=(), engines=(), offers=()
    ),  # type: ignore[arg-type]
    "i",
    0,
    (OBSERVED,),
)


def test_unrecognized_state_is_unknown_and_never_gone() -> None:
    wire = codec.report_to_wire(REPORT)
    wire.kernels[0] += agent_pb2.Observation(state="HIBERNATING").SerializeToString()
    assert codec.report_from_wire(wire).kernels == (replace(OBSERVED, state=ObservedState.UNKNOWN),)


def test_unrecognized_reason_stays_unknown_and_is_a_failure() -> None:
    wire = codec.report_to_wire(REPORT)
    wire.kernels[0] += agent_pb2.Observation(reason="struck-by-lightning").SerializeToString()
    (observed,) = codec.report_from_wire(wire).kernels
    assert observed.reason == "struck-by-lightning"
    assert observed.reason not in list(Reason)
    assert REASONS[observed.reason].failure
    assert not REASONS[observed.reason].retryable
    wire.kernels[0] += agent_pb2.Observation(
        reason="Struck by lightning! " * 100
    ).SerializeToString()
    assert codec.report_from_wire(wire).kernels[0].reason is Reason.CREATE_FAILED


def test_unrecognized_message_is_none() -> None:
    assert codec.manager_message_from_wire(agent_pb2.ManagerMessage()) is None


def test_missing_exit_code_is_not_zero() -> None:
    for code in (None, 0, -9):
        wire = codec.report_to_wire(replace(REPORT, kernels=(replace(OBSERVED, exit_code=code),)))
        assert codec.report_from_wire(wire).kernels[0].exit_code == code


def test_codec_refuses_a_field_that_the_message_lacks() -> None:
    @dataclass(frozen=True)
    class Wrong:
        slot: str
        colour: str

    with pytest.raises(TypeError, match="DeviceGrant has no field 'colour'"):
        codec_of(Wrong, agent_pb2.DeviceGrant)


def test_codec_refuses_a_type_without_a_rule() -> None:
    @dataclass(frozen=True)
    class Wrong:
        slot: set

    with pytest.raises(TypeError, match="no rule to encode a field of type"):
        codec_of(Wrong, agent_pb2.DeviceGrant)
