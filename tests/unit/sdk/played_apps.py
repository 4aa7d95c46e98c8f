"""Apps and access tokens as ``RestManager`` plays them."""

from __future__ import annotations

from datetime import timedelta

from aiohttp import web
from played import BORN
from pydantic import BaseModel

from moorage.common.views.access_tokens import AccessTokenSpec, AccessTokenView, AppView, NewAccessTokenView
from moorage.common.views.resources import Page

ACCESS_TOKEN = "mga-just-this-once"


class PlayedApps:
    """``apps`` by session, and the access tokens that were made and not revoked."""

    def __init__(self) -> None:
        self.apps: dict[str, list[AppView]] = {}
        self.access_tokens: list[AccessTokenView] = []

    def routes(self) -> list[web.RouteDef]:
        return _routes(self.apps, self.access_tokens)


def _routes(apps: dict[str, list[AppView]], access_tokens: list[AccessTokenView]) -> list[web.RouteDef]:
    at = "/v1/sessions/{ref}/apps/{app}/access-tokens"

    async def listing(request: web.Request) -> web.Response:
        return _shown(Page[AppView](items=apps.get(request.match_info["ref"], [])))

    async def create(request: web.Request) -> web.Response:
        ref, app = request.match_info["ref"], request.match_info["app"]
        spec = AccessTokenSpec.model_validate_json(await request.read())
        view = AccessTokenView(
            id=f"p{len(access_tokens)}", session_id=ref, app=app, prefix=ACCESS_TOKEN[:8], created_at=BORN,
            created_by="key:root", expires_at=BORN + timedelta(seconds=spec.lifetime_s),
        )  # fmt: skip
        access_tokens.append(view)
        found = next(one for one in apps[ref] if one.name == app)
        more = {"access_token": ACCESS_TOKEN, "protocol": found.protocol, "path": found.path}
        return _shown(NewAccessTokenView.model_validate(view.model_dump() | more), 201)

    async def listed(request: web.Request) -> web.Response:
        return _shown(Page[AccessTokenView](items=access_tokens))

    async def revoke(request: web.Request) -> web.Response:
        found = next(one for one in access_tokens if one.id == request.match_info["id"])
        access_tokens.remove(found)
        return _shown(found)

    return [
        web.get("/v1/sessions/{ref}/apps", listing),
        web.post(at, create),
        web.get(at, listed),
        web.delete(at + "/{id}", revoke),
    ]


def _shown(model: BaseModel, status: int = 200) -> web.Response:
    return web.Response(status=status, text=model.model_dump_json(), content_type="application/json")
