"""HEAppE server errors, and their classification. Pure.

HEAppE's status alone is ambiguous: 404 may be a failed validation, 401 another user's job, and 502
a wrong password. ``classify`` also reads the title and the detail, and recognizes the profiles of
6.3 and 6.5.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any

from moorage.agent.runtimes.base import RuntimeFailed

_MAX_DETAIL = 500


class SiteFault(StrEnum):
    """What an answer means for the caller."""

    SESSION = "session"  # log in again, once
    CREDENTIALS = "credentials"  # user name, password, key or token are refused
    FORBIDDEN = "forbidden"  # no role in the project, or another user's job
    ACCOUNT = "account"  # the project's cluster accounts are not initialised
    INVALID = "invalid"  # failed validation, or an unknown id
    NOT_FOUND = "not-found"  # the task or project does not exist, or the project has ended
    NO_ROUTE = "no-route"  # this version has no such call
    STATE = "state"  # not possible in the job's current state
    NOT_RUNNING = "not-running"  # the database does not show the task as running
    NO_TUNNEL = "no-tunnel"  # the server has no tunnel to this task for this user
    # the engine, or something on the path to it, did not answer 200; ``detail`` is the body
    UPSTREAM = "upstream"
    TUNNEL = "tunnel"  # the tunnel cannot be opened or closed
    NO_TUNNELS_LEFT = "no-tunnels-left"  # all of the server's local ports are taken
    UNSUPPORTED = "unsupported"  # this kind of cluster cannot do it
    SCHEDULER = "scheduler"  # the batch system refused, or its answer was lost
    SSH = "ssh"  # no connection to the login node, or a command failed there
    BUSY = "busy"  # rate limit, or no free connection
    TOO_LARGE = "too-large"
    GATEWAY = "gateway"  # an answer from something in front of the server
    INTERNAL = "internal"
    UNREACHABLE = "unreachable"  # no answer


# These mean that the cluster or the server is failing, and open the circuit.
OUTAGES = frozenset(
    {
        SiteFault.SCHEDULER,
        SiteFault.SSH,
        SiteFault.BUSY,
        SiteFault.GATEWAY,
        SiteFault.INTERNAL,
        SiteFault.UNREACHABLE,
    }
)
# The server answers, but accepts no jobs from this agent until the configuration is changed.
REFUSALS = frozenset(
    {
        SiteFault.CREDENTIALS,
        SiteFault.FORBIDDEN,
        SiteFault.ACCOUNT,
        SiteFault.NO_ROUTE,
        SiteFault.UNSUPPORTED,
    }
)
# After these errors, it is unknown whether the call took effect.
IN_DOUBT = frozenset(
    {
        SiteFault.SCHEDULER,
        SiteFault.SSH,
        SiteFault.GATEWAY,
        SiteFault.INTERNAL,
        SiteFault.UNREACHABLE,
    }
)

_NEXT_STEPS = {
    SiteFault.CREDENTIALS: "check agent.heappe_user, and its password or token",
    SiteFault.FORBIDDEN: "ask the site for the role Submitter in the project",
    SiteFault.ACCOUNT: "ask the site to initialise the cluster accounts of the project",
    SiteFault.NO_ROUTE: "check agent.heappe_url, and the version of the server",
    SiteFault.NO_TUNNELS_LEFT: (
        "ask the site for the limit of its tunnels (100 per server by default)"
    ),
    SiteFault.UNSUPPORTED: "use a Slurm or PBS cluster of the site",
    SiteFault.GATEWAY: "check the web server in front of HEAppE, and agent.heappe_url",
    SiteFault.UNREACHABLE: "check agent.heappe_url, and the network of this node",
}


class HeappeFailed(RuntimeFailed):
    """The HEAppE server refused a call or did not answer it. ``status`` is 0 if there was no
    answer. ``unsent``: the server certainly never received the call."""

    def __init__(
        self,
        problem: SiteFault,
        detail: str,
        *,
        call: str = "",
        status: int = 0,
        unsent: bool = False,
    ) -> None:
        self.problem = problem
        self.detail = detail
        self.call = call
        self.status = status
        self.unsent = unsent
        self.is_refusal = problem in REFUSALS
        said = f": {detail}" if detail else ""
        answered = f" with {status}" if status else ""
        super().__init__(
            f"HEAppE {call or 'call'} failed{answered} ({problem}){said}",
            next_step=_NEXT_STEPS.get(problem, ""),
        )

    @property
    def is_outage(self) -> bool:
        return self.problem in OUTAGES

    @property
    def in_doubt(self) -> bool:
        return self.problem in IN_DOUBT


# Title in lower case, pattern for the detail, meaning. The first match applies.
_TITLES: tuple[tuple[str, str, SiteFault], ...] = (
    ("session code authentication problem", r"expired", SiteFault.SESSION),
    ("session code authentication problem", r"", SiteFault.FORBIDDEN),
    ("authentication failed", r"", SiteFault.CREDENTIALS),
    ("unauthorized access", r"missing ?role", SiteFault.FORBIDDEN),
    ("unauthorized access", r"", SiteFault.SESSION),
    ("access forbidden", r"^unauthorized", SiteFault.SESSION),
    ("access forbidden", r"", SiteFault.FORBIDDEN),
    ("not allowed", r"", SiteFault.ACCOUNT),
    ("scheduler configuration error", r"", SiteFault.UNSUPPORTED),
    ("connection pool exhausted", r"", SiteFault.BUSY),
    ("tunnel exception", r"no free local port", SiteFault.NO_TUNNELS_LEFT),
    ("tunnel exception", r"", SiteFault.TUNNEL),
    ("slurm problem", r"", SiteFault.SCHEDULER),
    ("pbs problem", r"", SiteFault.SCHEDULER),
    ("ssh problem", r"", SiteFault.SSH),
    ("ssh command problem", r"", SiteFault.SSH),
    ("resource not found", r"", SiteFault.NOT_FOUND),
)
# These titles have many meanings, which can only be distinguished by the detail.
_DETAILS: tuple[tuple[str, SiteFault], ...] = (
    (
        r"not a currently running task|only for running task|NotCurrentlyRunning",
        SiteFault.NOT_RUNNING,
    ),
    (r"NoActiveConnection|no active connection", SiteFault.NO_TUNNEL),
    (r"NotSupportedEndpoint|not supported", SiteFault.UNSUPPORTED),
    (
        r"^cannot (cancel|delete)|this job is in state|NotInConfiguringState|in configuring state"
        r"|CannotDeleteJob",
        SiteFault.STATE,
    ),
    (
        r"ProjectNotFound|project .*(not exist|not found|ended)|NotExistingTaskInfo",
        SiteFault.NOT_FOUND,
    ),
)
_SUFFIXED = re.compile(r"(.*) \(Request ID: [^)]*\)", re.DOTALL)


def classify(
    status: int, content_type: str, body: bytes, *, call: str = "", login: bool = False
) -> HeappeFailed:
    """The meaning of an unsuccessful answer. ``login``: the call sent a user name and a
    password."""
    media_type = content_type.partition(";")[0].strip().lower()
    text = body.decode(errors="replace").strip()
    title, detail = _title_and_detail(text)
    problem = _problem(status, media_type, title=title, detail=detail, text=text, login=login)
    if problem is SiteFault.GATEWAY:
        detail = f"the answer has {media_type or 'an unknown type'}"
    elif problem is SiteFault.TOO_LARGE:
        detail = detail or "the body is larger than the server allows"

    # The body of an engine may be long, and is forwarded.
    shown = detail if problem is SiteFault.UPSTREAM else detail[:_MAX_DETAIL]
    return HeappeFailed(problem, shown, call=call, status=status)


def _problem(
    status: int, media_type: str, title: str, detail: str, *, text: str, login: bool
) -> SiteFault:
    if status == 413:
        return SiteFault.TOO_LARGE
    if media_type == "text/html" or text[:1] == "<":
        return SiteFault.GATEWAY
    if status == 429:
        return SiteFault.BUSY
    if not title:
        return _untitled(status, media_type, text)
    if login and (status == 401 or title.lower() == "external service error"):
        return SiteFault.CREDENTIALS

    return _titled(status, title.lower(), detail)


def _titled(status: int, lower: str, detail: str) -> SiteFault:
    for known, pattern, problem in _TITLES:
        if known == lower and re.search(pattern, detail, re.IGNORECASE):
            return problem
    for pattern, problem in _DETAILS:
        if re.search(pattern, detail, re.IGNORECASE):
            return problem

    if lower in ("invalid request", "connection problem"):
        # The upstream's body in quotes; '' for a dead tunnel and for a timeout.
        return (
            SiteFault.UPSTREAM
            if detail[:1] == "'" or "ResponseNotOk" in detail
            else SiteFault.NO_TUNNEL
        )

    if status in (400, 404):
        return SiteFault.INVALID
    if status in (401, 403):
        return SiteFault.FORBIDDEN

    # 6.3 uses "Problem" for a command that failed on the login node, among other things.
    return (
        SiteFault.SSH
        if lower == "problem" and re.search(r"ssh|command", detail, re.I)
        else SiteFault.INTERNAL
    )


def _untitled(status: int, media_type: str, text: str) -> SiteFault:
    if status == 401:
        return SiteFault.CREDENTIALS  # text/plain: the introspection of a bearer token
    if status in (404, 405) and (media_type == "text/plain" or not text):
        return SiteFault.NO_ROUTE
    if status in (502, 503, 504):
        return SiteFault.GATEWAY
    if status == 403:
        return SiteFault.FORBIDDEN
    if status in (400, 404, 415, 422):
        return SiteFault.INVALID

    return SiteFault.INTERNAL


def _title_and_detail(text: str) -> tuple[str, str]:
    """The title ("" if the body has none) and the detail without the request id."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return "", text[:_MAX_DETAIL] if text[:1] != "<" else ""

    if isinstance(value, str):
        return "", value
    if not isinstance(value, dict):
        return "", ""

    fields = {str(name).lower(): item for name, item in value.items()}
    detail = str(fields.get("detail") or "")
    errors = fields.get("errors")
    if isinstance(errors, dict):
        detail = "; ".join(
            f"{name}: {' '.join(map(str, _listed(why)))}" for name, why in errors.items()
        )

    return str(fields.get("title") or ""), _unsuffixed(detail)


def _unsuffixed(detail: str) -> str:
    found = _SUFFIXED.fullmatch(detail)
    return found.group(1) if found else detail


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# The stream call answers 200 and reports a failure in its body.
STREAM_ERROR = b"data: Error: "
STREAM_INVALID = b"Validation failed: "
_STREAM_KEYS: tuple[tuple[str, SiteFault], ...] = (
    (r"^ResponseNotOk", SiteFault.UPSTREAM),
    (r"^(Expired|Unauthorized)", SiteFault.SESSION),
    (r"^NoActiveConnection", SiteFault.NO_TUNNEL),
    (r"^MissingRole", SiteFault.FORBIDDEN),
    (r"^NotExistingTaskInfo", SiteFault.NOT_FOUND),
    (r"^Connection refused", SiteFault.NO_TUNNEL),  # the tunnel's listener is dead
)


def stream_failure(text: str, *, call: str = "") -> HeappeFailed:
    """The meaning of the text after ``data: Error: `` in a stream's body."""
    text = text.strip()
    for pattern, problem in _STREAM_KEYS:
        if re.search(pattern, text):
            return HeappeFailed(problem, text, call=call, status=200)
    # If the engine does not listen, the text is "An error occurred while sending the request."
    return HeappeFailed(SiteFault.UPSTREAM, text, call=call, status=200)


def upstream_body(detail: str) -> str:
    """The body of an engine's answer, from the detail of ``SiteFault.UPSTREAM``; empty if there is
    none."""
    found = re.fullmatch(r"'(.*)'", detail.strip(), re.DOTALL)
    return found.group(1) if found else ""
