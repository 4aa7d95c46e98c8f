"""Handlers for quotas."""

from __future__ import annotations

from moorage.common.model.group_options import QuotaLimits, Scope
from moorage.common.model.spec import Model, Name
from moorage.common.views.resources import QuotaView
from moorage.manager.api.request import read_path
from moorage.manager.api.route import Call, Items, NoQuery


class _QuotaPath(Model):
    scope: Scope
    name: Name


def _quota_path(scope: str, name: str) -> _QuotaPath:
    return read_path({"scope": scope, "name": name}, _QuotaPath)


async def list_quotas(call: Call[None, NoQuery]) -> Items[QuotaView]:
    return Items[QuotaView](items=await call.deps.store.quotas.all())


async def get_quota(call: Call[None, NoQuery]) -> QuotaView:
    path = _quota_path(call.path("scope"), call.path("name"))
    return await call.deps.store.quotas.get(path.scope, path.name)


async def put_quota(call: Call[QuotaLimits, NoQuery]) -> QuotaView:
    path = _quota_path(call.path("scope"), call.path("name"))
    return await call.deps.store.quotas.put(path.scope, path.name, call.body, actor=call.actor)


async def delete_quota(call: Call[None, NoQuery]) -> QuotaView:
    path = _quota_path(call.path("scope"), call.path("name"))
    return await call.deps.store.quotas.delete(path.scope, path.name)
