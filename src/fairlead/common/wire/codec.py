"""Between the dataclasses of ``common.messages`` and protobuf: one pair of functions per message."""

from __future__ import annotations

from fairlead.common import messages as m
from fairlead.common.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from fairlead.common.reasons import Reason
from fairlead.common.spec import DeviceGrant, KernelSpec
from fairlead.common.status import ObservedState, SessionType
from fairlead.common.wire import agent_pb2 as a
from fairlead.common.wire import routes_pb2 as r


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


def report_to_wire(report: m.Report) -> a.Report:
    info = report.info
    return a.Report(
        info=a.AgentInfo(
            agent_id=info.agent_id,
            resource_group=info.resource_group,
            address=info.address,
            version=info.version,
            arch=info.arch,
            runtimes=info.runtimes,
            engines=info.engines,
            labels=info.labels,
            offers=[
                a.SlotOffer(
                    slot=o.slot,
                    device_id=o.device_id,
                    capacity=o.capacity,
                    model=o.model,
                    memory_bytes=o.memory_bytes,
                    healthy=o.healthy,
                )
                for o in info.offers
            ],
        ),
        incarnation=report.incarnation,
        orders_generation=report.orders_generation,
        draining=report.draining,
        kernels=[
            a.Observation(
                kernel_id=k.kernel_id,
                session_id=k.session_id,
                state=k.state,
                host=k.host,
                port=k.port,
                exit_code=k.exit_code,
                reason=k.reason,
                detail=k.detail,
                log_tail=k.log_tail,
            )
            for k in report.kernels
        ],
    )


def report_from_wire(wire: a.Report) -> m.Report:
    info = wire.info
    return m.Report(
        info=m.AgentInfo(
            agent_id=AgentId(info.agent_id),
            resource_group=info.resource_group,
            address=info.address,
            version=info.version,
            arch=info.arch,
            runtimes=tuple(info.runtimes),
            engines=tuple(info.engines),
            labels=dict(info.labels),
            offers=tuple(
                m.SlotOffer(o.slot, o.capacity, DeviceId(o.device_id), o.model, o.memory_bytes, o.healthy)
                for o in info.offers
            ),
        ),
        incarnation=wire.incarnation,
        orders_generation=wire.orders_generation,
        draining=wire.draining,
        kernels=tuple(
            m.Observation(
                KernelId(k.kernel_id),
                SessionId(k.session_id),
                _state(k.state),
                k.host,
                k.port,
                k.exit_code if k.HasField("exit_code") else None,
                _reason(k.reason),
                k.detail,
                k.log_tail,
            )
            for k in wire.kernels
        ),
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
    )


def manager_message_to_wire(message: m.Orders | m.LogRequest) -> a.ManagerMessage:
    if isinstance(message, m.Orders):
        kernels = [kernel_to_wire(k) for k in message.kernels]
        return a.ManagerMessage(orders=a.Orders(generation=message.generation, kernels=kernels))
    return a.ManagerMessage(
        logs=a.LogRequest(
            request_id=message.request_id,
            kernel_id=message.kernel_id,
            tail_lines=message.tail_lines,
            follow=message.follow,
        )
    )


def manager_message_from_wire(wire: a.ManagerMessage) -> m.Orders | m.LogRequest | None:
    """None for a kind of message that this version does not know."""
    match wire.WhichOneof("what"):
        case "orders":
            return m.Orders(wire.orders.generation, tuple(kernel_from_wire(k) for k in wire.orders.kernels))
        case "logs":
            logs = wire.logs
            return m.LogRequest(logs.request_id, KernelId(logs.kernel_id), logs.tail_lines, logs.follow)
        case _:
            return None


def routes_to_wire(table: m.RouteTable) -> r.RouteTable:
    return r.RouteTable(
        generation=table.generation,
        models=[
            r.ModelRoute(
                name=model.name,
                created=model.created,
                targets=[
                    r.Target(
                        session_id=t.session_id,
                        kernel_id=t.kernel_id,
                        host=t.host,
                        port=t.port,
                        key=t.key,
                        engine=t.engine,
                        draining=t.draining,
                    )
                    for t in model.targets
                ],
            )
            for model in table.models
        ],
        keys=[r.KeyGrant(sha256=k.sha256, expires_at=k.expires_at) for k in table.keys],
    )


def routes_from_wire(wire: r.RouteTable) -> m.RouteTable:
    return m.RouteTable(
        generation=wire.generation,
        models=tuple(
            m.ModelRoute(
                model.name,
                model.created,
                tuple(
                    m.Target(
                        SessionId(t.session_id),
                        KernelId(t.kernel_id),
                        t.host,
                        t.port,
                        t.key,
                        t.engine,
                        t.draining,
                    )
                    for t in model.targets
                ),
            )
            for model in wire.models
        ),
        keys=tuple(m.KeyGrant(k.sha256, k.expires_at) for k in wire.keys),
    )
