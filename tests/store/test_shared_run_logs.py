"""Logs of shared runs: a session that shares a run does not expose the log of the session that
ran."""

from __future__ import annotations

import json

from moorage.manager.store import Store

from .tenancy_harness import serve


async def test_log_of_a_shared_run_stays_with_who_ran_it(store: Store) -> None:
    body = {"command": ["train"], "reuse": "both"}
    async with serve(store) as api:
        for caller in ("ann", "mate"):
            status, text = await api.call(
                caller, "POST", "/v1/sessions", body | {"name": f"of-{caller}"}
            )
            assert status == 201, text

        assert json.loads(text)["adopted_from"] is not None
        read = {
            (caller, of): (await api.call(caller, "GET", f"/v1/sessions/of-{of}/logs"))[0]
            for caller in ("ann", "mate", "lead")
            for of in ("ann", "mate")
        }
        _, refused = await api.call("mate", "GET", "/v1/sessions/of-mate/logs")

    assert "session 'of-ann', whose run this one shares, belongs to user 'ann'" in refused
    assert read == {
        ("ann", "ann"): 200,
        ("ann", "mate"): 403,
        ("mate", "ann"): 403,
        ("mate", "mate"): 403,
        ("lead", "ann"): 200,
        ("lead", "mate"): 200,
    }
