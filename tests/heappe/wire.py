"""Wire format of HEAppE: errors in both profiles, input that is bound case-insensitively, output
with explicit nulls.

The rules are facts taken from HEAppE 6.3.2's source and snapshots of 6.5; none of its code is
included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

PROFILES = ("6.3.2", "6.5")

# kind: (status, title) in 6.3.2 and in 6.5.
_ERRORS: dict[str, tuple[tuple[int, str], tuple[int, str]]] = {
    "validation": ((404, "Validation Problem"), (400, "Validation Problem")),
    "missing": ((404, "Validation Problem"), (404, "Resource Not Found")),
    "unauthorized": ((401, "Unauthorized Access"), (403, "Access Forbidden")),
    "expired": ((401, "Session Code Authentication Problem"),) * 2,
    "wrong-password": ((502, "External Service Error"), (401, "Authentication Failed")),
    "not-yours": ((401, "Session Code Authentication Problem"), (403, "Access Forbidden")),
    "connection": ((400, "Invalid Request"), (502, "Connection Problem")),
    "state": ((400, "Invalid Request"),) * 2,
    "slurm": ((502, "Slurm Problem"),) * 2,
    "ssh": ((502, "SSH Problem"),) * 2,
    "ssh-command": ((500, "Problem"), (502, "SSH Command Problem")),
    "tunnel": ((502, "Tunnel Exception"),) * 2,
    "pool": ((429, "Connection Pool Exhausted"),) * 2,
    "no-tunnels-here": ((500, "Problem"), (400, "Scheduler Configuration Error")),
    "not-allowed": ((403, "Not Allowed"),) * 2,
    "null-argument": ((500, "Problem"), (400, "Invalid Argument")),
    "problem": ((500, "Problem"),) * 2,
}


class Problem(Exception):
    """An answer other than 200 from HEAppE's own error handler. ``code``: the exception's resource
    key, which is all that the stream endpoint returns."""

    def __init__(self, kind: str, detail: str, code: str = "") -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.code = code or detail


class BindingFailed(Exception):
    """The body does not fit the model: ASP.NET responds before HEAppE's code runs."""

    def __init__(self, errors: dict[str, list[str]]) -> None:
        super().__init__(str(errors))
        self.errors = errors


def problem_response(problem: Problem, profile: str, request_id: str) -> web.Response:
    status, title = _ERRORS[problem.kind][PROFILES.index(profile)]
    body: dict[str, Any] = {"title": title, "status": status, "detail": problem.detail}
    if profile == "6.5":
        body["detail"] += f" (Request ID: {request_id})"
        body["TraceId"] = request_id

    return web.Response(
        status=status,
        body=_dumps(body),
        headers={"Content-Type": "application/json; charset=utf-8"},
    )


def binding_response(errors: dict[str, list[str]], request_id: str) -> web.Response:
    body = {
        "type": "https://tools.ietf.org/html/rfc9110#section-15.5.1",
        "title": "One or more validation errors occurred.",
        "status": 400,
        "errors": errors,
        "traceId": f"00-{request_id}-00",
    }
    return web.Response(
        status=400,
        body=_dumps(body),
        headers={"Content-Type": "application/problem+json; charset=utf-8"},
    )


def status_page(status: int, reason: str) -> web.Response:
    return web.Response(
        status=status, text=f"Status Code: {status}; {reason}", content_type="text/plain"
    )


def _dumps(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def reply(value: object) -> web.Response:
    """A result: a plain string becomes JSON with quotes, and None a 204 without a body."""
    if value is None:
        return web.Response(status=204)
    return web.Response(
        body=_dumps(value), headers={"Content-Type": "application/json; charset=utf-8"}
    )


def folded(value: Any) -> Any:
    """The same JSON with all member names in lower case."""
    if isinstance(value, dict):
        return {name.lower(): folded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [folded(inner) for inner in value]
    return value


@dataclass(frozen=True)
class Member:
    """The type and limits of one model member. ``kind``: int, str, bool, list or dict."""

    name: str
    kind: type
    limit: int = 0
    members: tuple[Member, ...] = ()


def bind(members: tuple[Member, ...], given: Any, where: str = "") -> None:
    """Raise ``BindingFailed`` unless the folded JSON fits. Unknown members are ignored; nulls and
    missing members are left to the validators."""
    errors: dict[str, list[str]] = {}
    _bind(members, given, where, errors)
    if errors:
        raise BindingFailed(errors)


def _bind(
    members: tuple[Member, ...], given: Any, where: str, errors: dict[str, list[str]]
) -> None:
    if not isinstance(given, dict):
        errors[f"$.{where}".rstrip(".")] = ["The JSON value could not be converted."]
        return

    for member in members:
        value = given.get(member.name.lower())
        path = f"{where}.{member.name}".lstrip(".")
        if value is None:
            continue

        fits = isinstance(value, member.kind) and (
            member.kind is not int or not isinstance(value, bool)
        )
        if not fits:
            errors[f"$.{path}"] = [f"The JSON value could not be converted. Path: $.{path}."]
        elif member.kind is str and member.limit and len(value) > member.limit:
            errors[path] = [
                f"The field {member.name} must be a string with a maximum length of {member.limit}."
            ]
        elif member.kind is dict:
            _bind(member.members, value, path, errors)
        elif member.kind is list and member.members:
            for number, item in enumerate(value):
                _bind(member.members, item, f"{path}[{number}]", errors)


NAME = re.compile(r"[A-Za-z0-9_\-. ]+")


def require(ok: Any, detail: str) -> None:
    """One validator rule."""
    if not ok:
        raise Problem("validation", detail)


def number(text: str | None, name: str) -> int:
    """A query parameter that is an integer."""
    if text is None or text == "":
        return 0
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise BindingFailed({name: [f"The value '{text}' is not valid."]})
    return int(text)


Handler = Callable[..., Any]
