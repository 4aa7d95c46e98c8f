"""Codecs for the proxy link, between ``link.messages``, ``link.proxy_messages`` and protobuf."""

from __future__ import annotations

from moorage.common.link import messages as m
from moorage.common.link import proxy_messages as p
from moorage.common.link.codec import UNKNOWN
from moorage.common.link.field_codec import codec
from moorage.common.link.pb import routes_pb2 as r

_limits = codec(m.RequestLimits, r.RequestLimits)
_target = codec(m.Target, r.Target)
_fallback = codec(m.RouteFallback, r.Fallback, {m.Target: _target})
_model = codec(
    m.ModelRoute,
    r.ModelRoute,
    {m.Target: _target, m.RequestLimits: _limits, m.RouteFallback: _fallback},
)
_budget = codec(m.BudgetGrant, r.BudgetGrant)
_key = codec(m.KeyGrant, r.KeyGrant, {m.RequestLimits: _limits, m.BudgetGrant: _budget})
_project = codec(m.ProjectGrant, r.ProjectGrant, {m.RequestLimits: _limits})
_app = codec(m.AppRoute, r.AppRoute, unknown=UNKNOWN)
_access_token = codec(m.AccessTokenGrant, r.AccessTokenGrant)
_table = codec(
    m.RouteTable,
    r.RouteTable,
    {
        m.ModelRoute: _model,
        m.KeyGrant: _key,
        m.AppRoute: _app,
        m.AccessTokenGrant: _access_token,
        m.ProjectGrant: _project,
    },
)
_replica = codec(p.ReplicaLoad, r.ReplicaLoad)
_load = codec(
    p.LoadReport,
    r.LoadReport,
    {p.ModelLoad: codec(p.ModelLoad, r.ModelLoad, {p.ReplicaLoad: _replica})},
)
_record = codec(p.UsageRecord, r.UsageRecord)
_report = codec(
    p.ProxyReport,
    r.ProxyReport,
    {
        p.LoadReport: _load,
        p.UsageBatch: codec(p.UsageBatch, r.UsageBatch, {p.UsageRecord: _record}),
        p.LimitNeed: codec(p.LimitNeed, r.LimitNeed),
    },
)
_reply = codec(
    p.ProxyReply,
    r.ProxyReply,
    {
        p.RecordsAck: codec(p.RecordsAck, r.RecordsAck),
        p.LimitShare: codec(p.LimitShare, r.LimitShare),
        p.EngineRequests: codec(p.EngineRequests, r.EngineRequests),
    },
)

routes_to_wire = _table.encode
routes_from_wire = _table.decode
report_to_wire = _report.encode
report_from_wire = _report.decode
reply_to_wire = _reply.encode
reply_from_wire = _reply.decode
