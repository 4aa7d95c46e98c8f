"""Route table in Postgres: models and service ports that are reachable now, and the credentials that open
them."""

from __future__ import annotations

from moorage.common.link.messages import AccessTokenGrant, RouteTable
from moorage.manager.serving.routes import app_routes, model_routes
from moorage.manager.store.database import Database
from moorage.manager.store.keys import KeyStore
from moorage.manager.store.queries import SQL


class RouteStore:
    def __init__(self, db: Database, keys: KeyStore) -> None:
        self._db, self._keys = db, keys

    async def table(self) -> RouteTable:
        """The table with generation 0: the route feed numbers it."""
        models = model_routes(await self._db.fetch(SQL["model_routes"]))
        keys = await self._keys.grants()
        apps = app_routes(await self._db.fetch(SQL["app_routes"]))
        return RouteTable(0, models, keys, apps, await self._access_tokens())

    async def _access_tokens(self) -> tuple[AccessTokenGrant, ...]:
        return tuple(
            AccessTokenGrant(row["sha256"], row["session_id"], row["app"], int(row["expires_at"].timestamp()))
            for row in await self._db.fetch(SQL["access_token_grants"])
        )
