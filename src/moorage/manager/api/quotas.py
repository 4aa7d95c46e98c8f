"""Handlers for quotas."""

from __future__ import annotations

from moorage.common.model.group_options import QuotaLimits, QuotaScope
from moorage.common.model.spec import Model, Name
from moorage.common.views.resources import QuotaView
from moorage.manager.api.request import read_path
from moorage.manager.api.route import Call, Items, NoQuery


class _QuotaPath(Model):
    scope: QuotaScope
    name: Name


def _quota_path(scope: str, name: str) -> _QuotaPath:
    return read_path({"scope": scope, "name": name}, _QuotaPath)


async def list_quotas(call: Call[None, NoQuery]) -> Items[QuotaView]:
    return Items[QuotaView](items=await call.deps.store.quotas.all(call.scope))


async def get_quota(call: Call[None, NoQuery]) -> QuotaView:
    path = _quota_path(call.path("scope"), call.path("name"))
    return await call.deps.store.quotas.get(call.scope, path.scope, path.name)


async def put_quota(call: Call[QuotaLimits, NoQuery]) -> QuotaView:
    path = _quota_path(call.path("scope"), call.path("name"))
    return await call.deps.store.quotas.put(call.scope, path.scope, path.name, call.body)


async def delete_quota(call: Call[None, NoQuery]) -> QuotaView:
    path = _quota_path(call.path("scope"), call.path("name"))
    return await call.deps.store.quotas.delete(call.scope, path.scope, path.name)
