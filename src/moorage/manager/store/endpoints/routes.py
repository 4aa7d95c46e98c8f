"""Route table in Postgres: models and service ports that are currently reachable, and the
credentials that open them.

The routes are kept between reads. Sessions and endpoints whose routes may have changed are
announced by ``Notifier.notify_routes``, and only those are read again. Because a notification may
be lost, all routes are also reread in chunks, or immediately if any may have changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import structlog

from moorage.common.link.messages import AppRoute, ModelRoute, RouteTable
from moorage.common.model.errors import ConfigError, StoreUnavailable
from moorage.common.model.ids import EndpointId, SessionId
from moorage.manager.lifecycle.sweep import Sweep
from moorage.manager.secrets.keyring import Keyring, SealedSecret
from moorage.manager.serving.routes import to_app_routes, to_model_routes
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import UnreadableRows
from moorage.manager.store.identity.keys import KeyStore
from moorage.manager.store.kernels.access_tokens import AccessTokenStore

log = structlog.get_logger("moorage.routes")
# How many models and service ports are reread with each table, and how many announced ones are read
# together.
SWEPT = 20
BATCH = 500
_FIRST = "00000000-0000-0000-0000-000000000000"
_Key = TypeVar("_Key")


class RouteStore:
    def __init__(
        self,
        db: Database,
        keys: KeyStore,
        access_tokens: AccessTokenStore,
        keyring: Keyring,
        *,
        notifier: Notifier,
        unreadable: UnreadableRows,
    ) -> None:
        self._db = db
        self._keys = keys
        self._keyring = keyring
        self._unreadable = unreadable
        self._access_tokens = access_tokens
        self._connection = db.dedicated_connection()
        self._models: dict[str, ModelRoute] = {}
        self._apps: dict[SessionId, tuple[AppRoute, ...]] = {}
        self._changed: set[SessionId | EndpointId] = set()

        # Changes that ``changes`` has not returned yet: models and service ports; None means that
        # it is gone.
        self._untold_models: dict[str, ModelRoute | None] = {}
        self._untold_apps: dict[str, AppRoute | None] = {}
        self._model_sweep: Sweep[str] = Sweep()  # of endpoints and sessions
        self._app_sweep: Sweep[tuple[str, int]] = Sweep()

        # Endpoints and sessions that had routes and that this round has not reread yet; some may be
        # gone.
        self._known_models: list[str] = []
        self._known_apps: list[SessionId] = []
        notifier.on_routes(self._routes_changed)

    def _routes_changed(self, changed: Collection[SessionId | EndpointId] | None) -> None:
        if changed is None:
            self._model_sweep.restart()
            self._app_sweep.restart()
        else:
            self._changed.update(changed)

    async def changes(self) -> RouteTable:
        """The models and service ports that were added, changed or removed since the last call.
        There may be only one caller, the route feed, which numbers the changes."""
        await self._read()
        models = self._untold_models
        self._untold_models = {}
        apps = self._untold_apps
        self._untold_apps = {}

        return RouteTable(
            0,
            tuple(route for route in models.values() if route is not None),
            (),
            tuple(route for route in apps.values() if route is not None),
            removed_models=tuple(name for name, route in models.items() if route is None),
            removed_apps=tuple(name for name, route in apps.items() if route is None),
        )

    async def credentials(self) -> RouteTable:
        """All keys, access tokens, project limits and revoked agents."""
        keys = await self._keys.grants()
        projects = await self._keys.project_grants()
        revoked = tuple(row["id"] for row in await self._db.fetch(SQL["revoked_peers"], "agent"))
        tokens = await self._access_tokens.grants()

        return RouteTable(
            0,
            (),
            keys=keys,
            apps=(),
            access_tokens=tokens,
            projects=projects,
            revoked_agents=revoked,
        )

    async def table(self) -> RouteTable:
        """The whole table with generation 0."""
        await self._read()
        models = tuple(self._models[name] for name in sorted(self._models))
        apps = tuple(
            chain.from_iterable(self._apps[session_id] for session_id in sorted(self._apps))
        )
        return replace(await self.credentials(), models=models, apps=apps)

    async def _read(self) -> None:
        changed = list(self._changed)
        self._changed = set()
        try:
            while changed:
                await self._read_models(changed[:BATCH], ())
                await self._read_apps(changed[:BATCH])
                del changed[:BATCH]
        except StoreUnavailable:
            self._changed.update(changed)
            raise

        await self._sweep_models()
        while self._model_sweep.urgent:
            await self._sweep_models()

        await self._sweep_apps()
        while self._app_sweep.urgent:
            await self._sweep_apps()

    async def _read_models(self, ids: Collection[str], names: Collection[str]) -> None:
        rows = await self._connection.fetch(SQL["model_routes"], list(ids), list(names))
        by_name: dict[str, list[Row]] = {}
        for row in rows:
            by_name.setdefault(row["model"], []).append(row)

        read = self._unreadable.each(
            "model", ({"id": n, "rows": r} for n, r in by_name.items()), self._route
        )
        found = {name: route for name, route in read if route is not None}

        # Unreadable rows keep their route, because their replicas serve no matter what else the row
        # contains.
        for name, _ in read:
            if name not in found:
                if self._models.pop(name, None) is not None:
                    self._untold_models[name] = None
            elif self._models.get(name) != found[name]:
                self._models[name] = self._untold_models[name] = found[name]

    def _route(self, model: Mapping[str, Any]) -> tuple[str, ModelRoute | None]:
        """Name of a model, and its route from all ``rows`` with that name; None if there is
        none."""
        routed = [row for row in model["rows"] if row["rank"] is not None]
        keys = {row["model"]: self._provider_keys(row) for row in routed if row["secrets"]}
        return model["id"], next(iter(to_model_routes(routed, keys)), None)

    def _provider_keys(self, row: Row) -> dict[str, str]:
        """Values of the secrets that an endpoint's fallbacks name."""
        values: dict[str, str] = {}
        for name, (key_id, data) in row["secrets"].items():
            try:
                sealed = SealedSecret(key_id, bytes.fromhex(data))
                values[name] = self._keyring.open(sealed, row["project"], name)
            except ConfigError as error:
                log.error(
                    "a fallback is omitted", endpoint=row["model"], secret=name, error=str(error)
                )

        return values

    async def _read_apps(self, ids: Collection[str]) -> None:
        rows: dict[str, list[Row]] = {}
        for row in await self._connection.fetch(SQL["app_routes"], list(ids)):
            rows.setdefault(row["session_id"], []).append(row)

        stored = ({"id": id_, "rows": rows.get(id_, [])} for id_ in ids)
        found = self._unreadable.each(
            "session", stored, lambda app: (app["id"], to_app_routes(app["rows"]))
        )
        for session_id, routes in ((SessionId(id_), routes) for id_, routes in found):
            before = self._apps.get(session_id, ())
            if before == routes:
                continue

            self._untold_apps |= {f"{session_id}/{route.app}": None for route in before}
            self._untold_apps |= {f"{session_id}/{route.app}": route for route in routes}
            if routes:
                self._apps[session_id] = routes
            else:
                del self._apps[session_id]

    async def _sweep_models(self) -> None:
        after = self._model_sweep.begin() or _FIRST
        ids = [row["id"] for row in await self._connection.fetch(SQL["model_ids"], after, SWEPT)]
        following = ids[-1] if len(ids) == SWEPT else None
        known, self._known_models = _split(
            self._known_models, self._models, whole=following is None
        )
        await self._read_models(ids, known)
        self._model_sweep.advance(following)

    async def _sweep_apps(self) -> None:
        after = self._app_sweep.begin() or ("", -1)
        rows = await self._connection.fetch(SQL["app_sessions"], *after, SWEPT)
        following = (rows[-1]["agent_id"], rows[-1]["port"]) if len(rows) == SWEPT else None
        known, self._known_apps = _split(self._known_apps, self._apps, whole=following is None)
        await self._read_apps({*(SessionId(row["session_id"]) for row in rows), *known})
        self._app_sweep.advance(following)


def _split(
    known: list[_Key], routes: Mapping[_Key, object], *, whole: bool
) -> tuple[list[_Key], list[_Key]]:
    """Split the known routes into those to reread with this chunk, and those for later. ``whole``:
    this is the last chunk of its round, so all remaining routes are reread; the next round covers
    those in ``routes``."""
    return (known, list(routes)) if whole else (known[:SWEPT], known[SWEPT:])
