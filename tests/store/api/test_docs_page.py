"""The page that documents the REST API: its content, and the policy that it obeys."""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape

from moorage.manager.api.http.problem_types import type_of
from moorage.manager.api.routes import ROUTES

from .served_api import Api


async def test_error_names_its_type_and_the_page_has_it(api: Api) -> None:
    _, problem = await api.request("GET", "/v1/sessions/none")
    assert problem["type"] == "/docs#not-found" == type_of(problem["code"])
    async with api.http.get("/docs") as response:
        page = await response.text()
        assert response.content_type == "text/html"
        policy = response.headers["Content-Security-Policy"]

    assert 'id="not-found"' in page
    assert all(escape(row.summary) in page for row in ROUTES)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"<script|style=|(src|href)=\"?https?:|src=|url\(", page), (
        "nothing that the policy refuses, no CDN"
    )
