"""Codecs for the agent link, between ``link.messages`` and protobuf.

Codecs for messages that consist only of fields are derived (``field_codec``). Those with a
different shape are written out: full and incremental reports and orders share one protobuf message
each, and manager messages are a ``oneof``.
"""

from __future__ import annotations

from moorage.common.link import messages as m
from moorage.common.link.field_codec import codec
from moorage.common.link.pb import agent_pb2 as a
from moorage.common.model.cluster import ClusterMember, ClusterMembership, Mode, Role
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import (
    Acknowledge,
    DeviceGrant,
    DoubtfulJob,
    HpcJob,
    KernelInput,
    KernelReload,
    KernelSpec,
    KernelTasks,
    Reloaded,
    ReloadOutcome,
    SiteNodes,
)
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort, Protocol, ServicePort
from moorage.common.model.status import ObservedState


def _reason(code: str) -> Reason:
    """Decode a reason. An unknown one is kept; a malformed one counts as a failure."""
    try:
        return Reason(code)
    except ValueError:
        return Reason.CREATE_FAILED


# A newer peer may send codes that this version does not know.
UNKNOWN = {
    Reason: _reason,
    ObservedState: ObservedState.UNKNOWN,
    Protocol: "http",
    Role: "sub",
    Mode: "single-node",
    Acknowledge: "handler",
    ReloadOutcome: "failed",
}

_offer = codec(m.SlotOffer, a.SlotOffer)
_runtime_state = codec(m.RuntimeState, a.RuntimeState)
_doubtful_job = codec(DoubtfulJob, a.DoubtfulJob)
_site_nodes = codec(SiteNodes, a.SiteNodes)
_info = codec(
    m.AgentInfo,
    a.AgentInfo,
    {
        m.SlotOffer: _offer,
        m.RuntimeState: _runtime_state,
        DoubtfulJob: _doubtful_job,
        SiteNodes: _site_nodes,
    },
    zero_is_default=("share_quantum", "share_minimum"),
)
_app_port = codec(AppPort, a.AppPort, unknown=UNKNOWN)
_service_port = codec(ServicePort, a.AppPort, unknown=UNKNOWN)
_reload = codec(KernelReload, a.Reload, unknown=UNKNOWN)
_reloaded = codec(Reloaded, a.Reloaded, unknown=UNKNOWN)
_observation = codec(
    m.Observation, a.Observation, {AppPort: _app_port, Reloaded: _reloaded}, UNKNOWN
)
_member = codec(ClusterMember, a.ClusterMember)
_membership = codec(ClusterMembership, a.ClusterMembership, {ClusterMember: _member}, UNKNOWN)
_device = codec(DeviceGrant, a.DeviceGrant)
_hpc_job = codec(HpcJob, a.HpcJob)
_kernel_input = codec(KernelInput, a.KernelInput)
_kernel_tasks = codec(KernelTasks, a.KernelTasks)
_kernel = codec(
    KernelSpec,
    a.KernelSpec,
    {
        DeviceGrant: _device,
        ClusterMembership: _membership,
        ServicePort: _service_port,
        HpcJob: _hpc_job,
        KernelInput: _kernel_input,
        KernelTasks: _kernel_tasks,
        KernelReload: _reload,
    },
)
_log_request = codec(m.LogRequest, a.LogRequest)
_exec_request = codec(m.ExecRequest, a.ExecRequest)
_workspace_request = codec(m.WorkspaceRequest, a.WorkspaceRequest)

kernel_to_wire = _kernel.encode
kernel_from_wire = _kernel.decode


def observation_to_wire(observation: m.Observation) -> bytes:
    encoded: bytes = _observation.encode(observation).SerializeToString()
    return encoded


def report_to_wire(report: m.Report | m.ReportDelta) -> a.Report:
    wire = a.Report(
        info=_info.encode(report.info) if report.info is not None else None,
        incarnation=report.incarnation,
        orders_generation=report.orders_generation,
        draining=report.draining,
        orders_wanted=report.orders_wanted,
        sent_at=report.sent_at,
        kernels=[observation_to_wire(k) for k in report.kernels],
    )
    if isinstance(report, m.Report):
        wire.stream = report.stream
        wire.newest_generation = report.newest_generation
    else:
        wire.delta = True
        wire.removed.extend(sorted(report.removed))

    return wire


def report_from_wire(wire: a.Report) -> m.Report | m.ReportDelta:
    kernels = tuple(_observation.decode(a.Observation.FromString(k)) for k in wire.kernels)
    if not wire.delta:
        return m.Report(
            info=_info.decode(wire.info),
            incarnation=wire.incarnation,
            orders_generation=wire.orders_generation,
            draining=wire.draining,
            orders_wanted=wire.orders_wanted,
            stream=wire.stream,
            newest_generation=wire.newest_generation,
            sent_at=wire.sent_at,
            kernels=kernels,
        )

    return m.ReportDelta(
        incarnation=wire.incarnation,
        orders_generation=wire.orders_generation,
        kernels=kernels,
        removed=frozenset(KernelId(k) for k in wire.removed),
        info=_info.decode(wire.info) if wire.HasField("info") else None,
        draining=wire.draining,
        orders_wanted=wire.orders_wanted,
        sent_at=wire.sent_at,
    )


ManagerMessage = (
    m.Orders
    | m.OrdersDelta
    | m.LogRequest
    | m.ExecRequest
    | m.WorkspaceRequest
    | m.FullReportRequest
    | m.Contact
)


def manager_message_to_wire(message: ManagerMessage) -> a.ManagerMessage:
    match message:
        case m.Orders():
            kernels = [kernel_to_wire(k) for k in message.kernels]
            return a.ManagerMessage(orders=a.Orders(generation=message.generation, kernels=kernels))
        case m.OrdersDelta():
            return a.ManagerMessage(
                orders=a.Orders(
                    generation=message.generation,
                    kernels=[kernel_to_wire(k) for k in message.added],
                    delta=True,
                    base=message.base,
                    withdrawn=sorted(message.withdrawn),
                    digest=message.digest,
                )
            )
        case m.FullReportRequest():
            return a.ManagerMessage(
                full_report=a.FullReportRequest(
                    no_database=message.no_database, manager=message.manager
                )
            )
        case m.Contact():
            return a.ManagerMessage(contact=a.Contact(sent_at=message.sent_at))
        case m.WorkspaceRequest():
            return a.ManagerMessage(workspaces=_workspace_request.encode(message))
        case m.ExecRequest():
            return a.ManagerMessage(exec=_exec_request.encode(message))
        case m.LogRequest():
            return a.ManagerMessage(logs=_log_request.encode(message))


def manager_message_from_wire(wire: a.ManagerMessage) -> ManagerMessage | None:
    """Decode a message from the manager; None for a kind that this version does not know."""
    match wire.WhichOneof("what"):
        case "orders":
            orders = wire.orders
            kernels = tuple(kernel_from_wire(k) for k in orders.kernels)
            if not orders.delta:
                return m.Orders(orders.generation, kernels)

            withdrawn = frozenset(KernelId(k) for k in orders.withdrawn)
            return m.OrdersDelta(
                orders.generation,
                orders.base,
                added=kernels,
                withdrawn=withdrawn,
                digest=orders.digest,
            )
        case "logs":
            return _log_request.decode(wire.logs)
        case "workspaces":
            return _workspace_request.decode(wire.workspaces)
        case "exec":
            return _exec_request.decode(wire.exec)
        case "contact":
            return m.Contact(wire.contact.sent_at)
        case "full_report":
            return m.FullReportRequest(wire.full_report.no_database, wire.full_report.manager)
        case _:
            return None
