"""The proxy's end of the route feed in the scale benchmark: the cost of one changed replica, by the
number of endpoints with 20 replicas each. The manager's end is among the loops
(``scale_loops``)."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import ModelRoute, RouteTable, Target
from moorage.common.link.pb import routes_pb2
from moorage.common.link.route_codec import routes_from_wire
from moorage.common.model.ids import KernelId, SessionId
from moorage.manager.serving.route_parts import RouteParts
from moorage.proxy.control.saved_table import SavedTable
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.routes import IndexedTable
from scale_meter import Case, Meter

REPLICAS = 20
CHANGES = 20


class Routes:
    """``size`` endpoints, and a proxy that follows them."""

    def __init__(self, dsn: str, size: int) -> None:
        self._models = [
            ModelRoute(
                f"model-{n}", 1, tuple(self._target(n, replica) for replica in range(REPLICAS))
            )
            for n in range(size)
        ]
        self._generation = 1
        self._number = 0
        self._parts = RouteParts()

    def _target(self, endpoint: int, replica: int) -> Target:
        name = f"{endpoint:08d}-0000-7000-8000-{replica:012d}"
        return Target(
            SessionId(name),
            KernelId(name),
            host="127.0.0.1",
            port=20_000 + replica,
            key="k" * 32,
            engine="vllm",
        )

    async def __aenter__(self) -> Routes:
        self._directory = tempfile.TemporaryDirectory(prefix="moorage-scale-")
        self._saved = SavedTable(Path(self._directory.name) / "routes.json")
        self._router = RequestRouter(ProxySettings(), ProxyMetrics(), randrange=random.randrange)
        self._parts.update(RouteTable(0, tuple(self._models), ()))
        self._receive(self._parts.message(1))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._directory.cleanup()

    def _receive(self, message: bytes) -> None:
        table = self._router.update_table(
            routes_from_wire(routes_pb2.RouteTable.FromString(message))
        )
        assert isinstance(table, IndexedTable)

    async def round(self, meter: Meter) -> None:
        for _ in range(CHANGES):
            self._number += 1
            index = self._number % len(self._models)
            model = self._models[index]
            first = replace(model.targets[0], port=30_000 + self._number % 30_000)
            self._models[index] = model = replace(model, targets=(first, *model.targets[1:]))
            with meter.step("manager: encode one replica's change"):
                changes = self._parts.apply(RouteTable(0, (model,), ()))
                message = changes.message(self._generation + 1, self._generation)

            self._generation += 1
            with meter.step("proxy: apply it"):
                self._receive(message)

        table = self._router.table
        assert table is not None
        with meter.step("proxy: save the table (in a thread, with pauses)"):
            self._saved.store(table.whole())


CASES = {"routes": Case(Routes, (10, 100, 1_000), (30, 300))}
