"""A revoked proxy: its open requests end, and it admits no new ones."""

from __future__ import annotations

import hashlib
import random

from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.flow import RequestFlow
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.routes import IndexedTable

HEAD = {"Authorization": "Bearer key"}
KEY = KeyGrant(hashlib.sha256(b"key").hexdigest())


def asked(router: RequestRouter) -> RequestFlow:
    """A request that was sent to a replica."""
    flow = RequestFlow(router, "id", 0.0)
    flow.head("POST", "/v1/completions", HEAD, 16, now=0.0, unix_now=0.0)
    flow.body(b'{"model":"tiny"}', 0.0)
    assert flow.target is not None
    return flow


def test_replicas_are_lost_to_clients_and_then_nothing_is_admitted() -> None:
    for peer_id in ("a1", ""):
        router = RequestRouter(
            ProxySettings(), ProxyMetrics(), randrange=random.Random(1).randrange
        )
        router.credentials.connected()
        replica = Target(
            SessionId("s"),
            KernelId("k"),
            host="h",
            port=1,
            key="key",
            engine="custom",
            peer_id=peer_id,
        )
        router.update_table(RouteTable(7, (ModelRoute("tiny", 1, (replica,)),), (KEY,)))
        flow = asked(router)
        ends = list[str]()

        def on_table(table: IndexedTable, flow: RequestFlow = flow, ends: list[str] = ends) -> None:
            if not flow.may_go_on(table, 0.0):
                ends.append("key")
            elif flow.is_at_revoked(table):
                ends.append("replica")

        router.watch_tables(on_table)
        router.forget()
        assert ends[0] == "replica"
        assert router.table is None
        refused = router.admit_head("POST", "/v1/completions", HEAD, 16, unix_now=0.0, now=0.0)
        assert isinstance(refused, ErrorResponse)
        assert refused.status == 503
        router.forget()

        # It has joined again.
        router.update_table(RouteTable(3, (ModelRoute("tiny", 1, (replica,)),), (KEY,)))
        assert asked(router).target == replica
