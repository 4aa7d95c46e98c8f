"""Between the dataclasses of ``common.messages`` and protobuf: one pair of functions per message."""

from __future__ import annotations

from moorage.common.link import messages as m
from moorage.common.link.deltas import Delta
from moorage.common.link.pb import agent_pb2 as a
from moorage.common.model.cluster import Membership, Peer
from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort, Protocol, ServicePort
from moorage.common.model.status import ObservedState, SessionType


def _reason(code: str) -> Reason:
    # A newer peer may know reasons that we do not: keep going, say that it is unknown to us.
    try:
        return Reason(code)
    except ValueError:
        return Reason.CREATE_FAILED


def _state(state: str) -> ObservedState:
    try:
        return ObservedState(state)
    except ValueError:
        return ObservedState.UNKNOWN


def _info_to_wire(info: m.AgentInfo) -> a.AgentInfo:
    return a.AgentInfo(
        agent_id=info.agent_id,
        resource_group=info.resource_group,
        address=info.address,
        version=info.version,
        arch=info.arch,
        runtimes=info.runtimes,
        engines=info.engines,
        labels=info.labels,
        identity=info.identity,
        max_kernels=info.max_kernels or 0,
        share_quantum=info.share_quantum,
        share_minimum=info.share_minimum,
        offers=[
            a.SlotOffer(
                slot=o.slot,
                device_id=o.device_id,
                capacity=o.capacity,
                model=o.model,
                memory_bytes=o.memory_bytes,
                healthy=o.healthy,
                numa=o.numa,
                island=o.island,
                parent=o.parent,
                trouble=o.trouble,
            )
            for o in info.offers
        ],
    )


def _info_from_wire(info: a.AgentInfo) -> m.AgentInfo:
    return m.AgentInfo(
        agent_id=AgentId(info.agent_id),
        resource_group=info.resource_group,
        address=info.address,
        version=info.version,
        arch=info.arch,
        runtimes=tuple(info.runtimes),
        engines=tuple(info.engines),
        labels=dict(info.labels),
        identity=info.identity,
        max_kernels=info.max_kernels or None,
        share_quantum=info.share_quantum or 1,
        share_minimum=info.share_minimum or 1,
        offers=tuple(
            m.SlotOffer(
                o.slot,
                o.capacity,
                DeviceId(o.device_id),
                o.model,
                o.memory_bytes,
                o.healthy,
                o.numa if o.HasField("numa") else None,
                o.island,
                DeviceId(o.parent),
                o.trouble,
            )
            for o in info.offers
        ),
    )


def read_protocol(text: str) -> Protocol:
    return "tcp" if text == "tcp" else "http"


def _observation_to_wire(k: m.Observation) -> a.Observation:
    return a.Observation(
        kernel_id=k.kernel_id,
        session_id=k.session_id,
        state=k.state,
        host=k.host,
        port=k.port,
        exit_code=k.exit_code,
        reason=k.reason,
        detail=k.detail,
        log_tail=k.log_tail,
        apps=[
            a.AppPort(
                name=p.name,
                port=p.port,
                protocol=p.protocol,
                base_path=p.base_path,
                inner=p.inner,
                guarded=p.guarded,
            )
            for p in k.apps
        ],
    )


def _observation_from_wire(k: a.Observation) -> m.Observation:
    return m.Observation(
        KernelId(k.kernel_id),
        SessionId(k.session_id),
        _state(k.state),
        k.host,
        k.port,
        k.exit_code if k.HasField("exit_code") else None,
        _reason(k.reason),
        k.detail,
        k.log_tail,
        tuple(
            AppPort(p.name, p.port, read_protocol(p.protocol), p.base_path, p.inner, p.guarded)
            for p in k.apps
        ),
    )


def report_to_wire(report: m.Report | m.ReportDelta) -> a.Report:
    if isinstance(report, m.Report):
        return a.Report(
            info=_info_to_wire(report.info),
            incarnation=report.incarnation,
            orders_generation=report.orders_generation,
            draining=report.draining,
            orders_wanted=report.orders_wanted,
            stream=report.stream,
            kernels=[_observation_to_wire(k) for k in report.kernels],
        )
    return a.Report(
        info=_info_to_wire(report.info) if report.info is not None else None,
        incarnation=report.incarnation,
        orders_generation=report.orders_generation,
        draining=report.draining,
        orders_wanted=report.orders_wanted,
        kernels=[_observation_to_wire(k) for k in report.kernels.changed.values()],
        delta=True,
        gone=sorted(report.kernels.gone),
        digest=report.kernels.digest,
    )


def report_from_wire(wire: a.Report) -> m.Report | m.ReportDelta:
    kernels = tuple(_observation_from_wire(k) for k in wire.kernels)
    if not wire.delta:
        return m.Report(
            info=_info_from_wire(wire.info),
            incarnation=wire.incarnation,
            orders_generation=wire.orders_generation,
            draining=wire.draining,
            orders_wanted=wire.orders_wanted,
            stream=wire.stream,
            kernels=kernels,
        )
    return m.ReportDelta(
        incarnation=wire.incarnation,
        orders_generation=wire.orders_generation,
        kernels=Delta(
            {k.kernel_id: k for k in kernels}, frozenset(KernelId(k) for k in wire.gone), wire.digest
        ),
        info=_info_from_wire(wire.info) if wire.HasField("info") else None,
        draining=wire.draining,
        orders_wanted=wire.orders_wanted,
    )


def _cluster_to_wire(c: Membership) -> a.Membership:
    return a.Membership(
        hostname=c.hostname,
        role=c.role,
        index=c.index,
        mode=c.mode,
        group=c.group,
        peers=[a.Peer(hostname=peer.hostname, address=peer.address) for peer in c.peers],
        private_key=c.private_key,
        public_key=c.public_key,
    )


def _cluster_from_wire(c: a.Membership) -> Membership:
    return Membership(
        hostname=c.hostname,
        role="main" if c.role == "main" else "sub",
        index=c.index,
        mode="multi-node" if c.mode == "multi-node" else "single-node",
        group=KernelId(c.group),
        peers=tuple(Peer(peer.hostname, peer.address) for peer in c.peers),
        private_key=c.private_key,
        public_key=c.public_key,
    )


def kernel_to_wire(k: KernelSpec) -> a.KernelSpec:
    return a.KernelSpec(
        kernel_id=k.kernel_id,
        session_id=k.session_id,
        session_name=k.session_name,
        session_type=k.session_type,
        runtime=k.runtime,
        engine=k.engine,
        served_name=k.served_name,
        model=k.model,
        args=k.args,
        command=k.command,
        env=k.env,
        probe_path=k.probe_path,
        probe_period_s=k.probe_period_s,
        slots=k.slots,
        devices=[a.DeviceGrant(slot=d.slot, device_id=d.device_id, amount=d.amount) for d in k.devices],
        secret=k.secret,
        start_timeout_s=k.start_timeout_s,
        stop_grace_s=k.stop_grace_s,
        endpoint_id=k.endpoint_id or "",
        image=k.image,
        container_user=k.container_user,
        workspace=k.workspace,
        cluster=_cluster_to_wire(k.cluster) if k.cluster is not None else None,
        ports=[
            a.AppPort(name=p.name, port=p.port, protocol=p.protocol, base_path=p.base_path, guarded=p.guarded)
            for p in k.ports
        ],
    )


def kernel_from_wire(k: a.KernelSpec) -> KernelSpec:
    return KernelSpec(
        kernel_id=KernelId(k.kernel_id),
        session_id=SessionId(k.session_id),
        session_name=k.session_name,
        session_type=SessionType(k.session_type),
        runtime=k.runtime,
        engine=k.engine,
        served_name=k.served_name,
        model=k.model,
        args=tuple(k.args),
        command=tuple(k.command),
        env=dict(k.env),
        probe_path=k.probe_path,
        probe_period_s=k.probe_period_s,
        slots=dict(k.slots),
        devices=tuple(DeviceGrant(d.slot, DeviceId(d.device_id), d.amount) for d in k.devices),
        secret=k.secret,
        start_timeout_s=k.start_timeout_s,
        stop_grace_s=k.stop_grace_s,
        endpoint_id=EndpointId(k.endpoint_id) if k.endpoint_id else None,
        image=k.image,
        container_user=k.container_user,
        workspace=k.workspace,
        cluster=_cluster_from_wire(k.cluster) if k.HasField("cluster") else None,
        ports=tuple(
            ServicePort(p.name, p.port, read_protocol(p.protocol), p.base_path, p.guarded) for p in k.ports
        ),
    )


ManagerMessage = (
    m.Orders | m.OrdersDelta | m.LogRequest | m.ExecRequest | m.WorkspaceRequest | m.WholeReportWanted
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
        case m.WholeReportWanted():
            return a.ManagerMessage(whole=a.WholeReportWanted())
        case m.WorkspaceRequest():
            asked = a.WorkspaceRequest(request_id=message.request_id, remove=message.remove)
            return a.ManagerMessage(workspaces=asked)
        case m.ExecRequest():
            return a.ManagerMessage(
                exec=a.ExecRequest(
                    request_id=message.request_id,
                    kernel_id=message.kernel_id,
                    command=message.command,
                    tty=message.tty,
                    stdin=message.stdin,
                    rows=message.rows,
                    cols=message.cols,
                    env=message.env,
                )
            )
        case m.LogRequest():
            return a.ManagerMessage(
                logs=a.LogRequest(
                    request_id=message.request_id,
                    kernel_id=message.kernel_id,
                    tail_lines=message.tail_lines,
                    follow=message.follow,
                )
            )


def manager_message_from_wire(wire: a.ManagerMessage) -> ManagerMessage | None:
    """None for a kind of message that this version does not know."""
    match wire.WhichOneof("what"):
        case "orders":
            orders = wire.orders
            kernels = tuple(kernel_from_wire(k) for k in orders.kernels)
            if not orders.delta:
                return m.Orders(orders.generation, kernels)
            withdrawn = frozenset(KernelId(k) for k in orders.withdrawn)
            return m.OrdersDelta(orders.generation, orders.base, kernels, withdrawn, orders.digest)
        case "logs":
            logs = wire.logs
            return m.LogRequest(logs.request_id, KernelId(logs.kernel_id), logs.tail_lines, logs.follow)
        case "workspaces":
            return m.WorkspaceRequest(wire.workspaces.request_id, wire.workspaces.remove)
        case "exec":
            e = wire.exec
            return m.ExecRequest(
                e.request_id,
                KernelId(e.kernel_id),
                tuple(e.command),
                e.tty,
                e.stdin,
                e.rows,
                e.cols,
                dict(e.env),
            )
        case "whole":
            return m.WholeReportWanted()
        case _:
            return None
