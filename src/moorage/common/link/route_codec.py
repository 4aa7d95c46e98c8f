"""Codecs of the route feed: between the route table in ``link.messages`` and protobuf."""

from __future__ import annotations

from moorage.common.link import messages as m
from moorage.common.link.codec import UNKNOWN
from moorage.common.link.field_codec import codec
from moorage.common.link.pb import routes_pb2 as r

_target = codec(m.Target, r.Target)
_model = codec(m.ModelRoute, r.ModelRoute, {m.Target: _target})
_key = codec(m.KeyGrant, r.KeyGrant)
_app = codec(m.AppRoute, r.AppRoute, unknown=UNKNOWN)
_access_token = codec(m.AccessTokenGrant, r.AccessTokenGrant)
_table = codec(
    m.RouteTable,
    r.RouteTable,
    {m.ModelRoute: _model, m.KeyGrant: _key, m.AppRoute: _app, m.AccessTokenGrant: _access_token},
)

routes_to_wire, routes_from_wire = _table.encode, _table.decode
