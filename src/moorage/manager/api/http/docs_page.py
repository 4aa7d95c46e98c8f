"""Documentation page of the REST API: HTML generated from the OpenAPI description, without
scripts."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from moorage.manager.api.http.problem_types import TYPES

_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 "
    "system-ui,sans-serif;max-width:60rem;margin:2rem auto;"
    "padding:0 1rem}code,pre{font:.9em "
    "ui-monospace,monospace;overflow-wrap:anywhere}pre{overflow-x:auto}"
    "details{border-top:1px solid #8886;padding:.4rem 0}summary{cursor:pointer}dt{font-weight:600}"
    "dd{margin:0 0 .4rem 1rem}"
)
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def render(document: Mapping[str, Any]) -> str:
    """Render the page for an OpenAPI description."""
    return "\n".join(_lines(document))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}: REST API")
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style></head><body><main><h1>{title}</h1>"
    yield (
        f'<p>{escape(info["description"])} <a href="openapi.json">/openapi.json</a> contains '
        "every model.</p>"
    )
    tags: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tags.setdefault(operation["tags"][0], []).append(
                "\n".join(_operation(method, path, operation))
            )

    for tag, operations in sorted(tags.items()):
        yield f"<h2>{escape(tag)}</h2>"
        yield from operations

    yield "<h2>Problems</h2><dl>"
    for code, problem in TYPES.items():
        text = escape(f"HTTP {problem.status}. {problem.text} {problem.cure}")
        yield f'<dt id="{code}"><code>{code}</code></dt><dd>{text}</dd>'

    yield "</dl></main></body></html>"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    name = f"<code>{method.upper()} {escape(path)}</code>"
    yield f"<details><summary>{name} {escape(operation['summary'])}</summary>"
    yield f"<p>{escape(operation['description'])}</p>"

    if parameters := operation["parameters"]:
        yield "<dl>"
        for parameter in parameters:
            choices = ", ".join(map(str, parameter["schema"].get("enum", [])))
            text = parameter.get("description", "") or choices
            shown = f"<code>{escape(parameter['name'])}</code> ({parameter['in']})"
            yield f"<dt>{shown}</dt><dd>{escape(text)}</dd>"

        yield "</dl>"

    for content in operation.get("requestBody", {}).get("content", {}).values():
        yield f"<pre>{escape(json.dumps(content.get('example'), indent=2))}</pre>"

    statuses = ", ".join(operation["responses"])
    yield f"<p>Answers: {escape(statuses)}.</p></details>"
