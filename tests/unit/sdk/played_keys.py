"""API keys as ``RestManager`` plays them."""

from __future__ import annotations

from aiohttp import web
from played import BORN
from pydantic import BaseModel

from moorage.common.views.keys import KeySpec, KeyView, NewKeyView
from moorage.common.views.resources import Page, Problem

SECRET = "mg-just-this-once"


def routes(keys: dict[str, KeyView]) -> list[web.RouteDef]:
    """What ``keys`` holds by name, over REST."""

    async def create(request: web.Request) -> web.Response:
        spec = KeySpec.model_validate_json(await request.read())
        if spec.name in keys:
            return _refuse(409, "conflict", f"there is a key named {spec.name!r}")
        view = KeyView(
            id=f"id-{spec.name}", name=spec.name, prefix=SECRET[:8], role=spec.role, project=spec.project,
            user=spec.user or spec.name, created_at=BORN, created_by="key:root", expires_at=spec.expires_at,
        )  # fmt: skip
        keys[spec.name] = view
        return _shown(NewKeyView.model_validate({**view.model_dump(), "secret": SECRET}), 201)

    async def listing(request: web.Request) -> web.Response:
        return _shown(Page[KeyView](items=list(keys.values())))

    async def one(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return _shown(keys[name]) if name in keys else _refuse(404, "not-found", f"no key named {name!r}")

    async def revoke(request: web.Request) -> web.Response:
        answer = await one(request)
        keys.pop(request.match_info["name"], None)
        return answer

    return [
        web.post("/v1/keys", create),
        web.get("/v1/keys", listing),
        web.get("/v1/keys/{name}", one),
        web.delete("/v1/keys/{name}", revoke),
    ]


def _shown(model: BaseModel, status: int = 200) -> web.Response:
    return web.Response(status=status, text=model.model_dump_json(), content_type="application/json")


def _refuse(status: int, code: str, detail: str) -> web.Response:
    return _shown(Problem(title=code, status=status, detail=detail, code=code), status)
