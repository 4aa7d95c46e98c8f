"""A manager of an earlier release leads: this one stores nothing that stops it at one row."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.common.model.group_options import GroupOptions
from moorage.common.model.hpc_options import HpcOptions
from moorage.manager.store import Store

from .tenancy_harness import ROOT, serve


async def lead_as_before(store: Store) -> None:
    """A term that a manager of the release before has begun: its statement names no schema."""
    await store.database.fetch("DELETE FROM leases")
    await store.database.fetch(
        "INSERT INTO leases (name, holder, term, expires_at) "
        "VALUES ('leader', 'older', 1, now() + interval '1 h')"
    )


NEWER: list[dict[str, Any]] = [{"reuse": "success"}, {"secret_env": {"A": "a"}}, {"type": "system"}]


@pytest.mark.parametrize("fields", NEWER, ids=str)
async def test_what_an_older_leader_cannot_read_is_not_stored_while_it_leads(
    store: Store, fields: dict[str, Any]
) -> None:
    body = {"command": ["x"], "name": "a"}
    async with serve(store) as api:
        await lead_as_before(store)
        status, text = await api.call("admin", "POST", "/v1/sessions", body | fields)
        refused = "the leading manager runs an earlier release" in text or "secret" in text
        assert (status in {409, 422}, refused) == (True, True), text
        assert (await api.call("admin", "POST", "/v1/sessions", body))[0] == 201
        pipeline = {"name": "p", "steps": [{"name": "s", "spec": {"command": ["x"]} | fields}]}
        assert (await api.call("admin", "POST", "/v1/pipelines", pipeline))[0] in {409, 422}
        served = {"name": "e", "engine": "vllm", "model": "m", "overlap": "never"}
        status, text = await api.call("admin", "POST", "/v1/endpoints", served)
        assert (status, "does not know overlap" in text) == (409, True)

    assert {one.name for one in (await store.sessions.page(ROOT)).items} == {"a"}


async def test_what_a_group_adds_is_not_stored_either(store: Store) -> None:
    site = HpcOptions(runtime="slurm", walltime_s=3600)
    await store.groups.put("hpc", GroupOptions(hpc=site), actor="t")
    await store.groups.put("repeats", GroupOptions(reuse="success"), actor="t")

    async with serve(store) as api:
        await lead_as_before(store)
        for group, field in (("hpc", "job"), ("repeats", "reuse")):
            body = {"command": ["x"], "resource_group": group}
            status, text = await api.call("admin", "POST", "/v1/sessions", body)
            assert (status, f"does not know {field}" in text) == (409, True), text

        pipeline = {
            "name": "p",
            "steps": [{"name": "s", "spec": {"command": ["x"], "resource_group": "hpc"}}],
        }
        status, text = await api.call("admin", "POST", "/v1/pipelines", pipeline)
        assert (status, "does not know job" in text) == (409, True), text

    assert not (await store.sessions.page(ROOT)).items


async def test_a_leader_that_knows_this_schema_reads_what_is_new(store: Store) -> None:
    body = {"command": ["x"], "name": "a", "reuse": "success"}
    async with serve(store) as api:
        assert not await store.leases.older_leads(), "nobody leads"
        await lead_as_before(store)
        assert await store.leases.older_leads()
        await store.database.fetch("UPDATE leases SET expires_at = now()")
        assert not await store.leases.older_leads(), "it leads no more"
        assert await store.leases.acquire("newer", 60) is not None
        assert not await store.leases.older_leads()
        assert (await api.call("admin", "POST", "/v1/sessions", body))[0] == 201

    await store.database.fetch("UPDATE schema_compatibility SET leads_since = compatible_since")
    await store.database.fetch("UPDATE leases SET expires_at = now()")
    older = await store.database.fetch(
        "WITH named AS (SELECT set_config('moorage.schema', '0080', true)) "
        "UPDATE leases SET holder = 'older', term = term + 1, expires_at = now() + interval '1 h' FROM named "
        "RETURNING term"
    )
    assert (bool(older), await store.leases.older_leads()) == (True, True), (
        "permitted by `moorage db downgrade`"
    )
