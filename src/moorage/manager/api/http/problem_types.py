"""Types of problems: the table behind ``type`` in errors, the page ``/docs`` and the reference.

A test compares it with the errors in the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

DOCS_PATH = "/docs"


@dataclass(frozen=True, slots=True)
class ProblemType:
    """``text`` is the cause, and ``cure`` what a client can do about it."""

    status: int
    text: str
    cure: str


TYPES: Mapping[str, ProblemType] = {
    "agent-unreachable": ProblemType(
        503, "The agent is not connected to any manager.", "Wait for the time in Retry-After."
    ),
    "body-too-large": ProblemType(
        413, "The body is larger than manager.max_body_bytes.", "Send a smaller one."
    ),
    "budget-exhausted": ProblemType(
        403,
        "A budget of the project, the user or the key is used up.",
        "Wait until its period ends, or ask for a larger one.",
    ),
    "conflict": ProblemType(
        409, "The state of this or another resource forbids the request.", "Read it."
    ),
    "csrf": ProblemType(
        403,
        "A write with a cookie has no CSRF token or no Origin header.",
        "Send both, or use an API key.",
    ),
    "forbidden": ProblemType(
        403, "The caller may see the resource but not perform this action.", "Use a role that may."
    ),
    "needs-newer-manager": ProblemType(
        409,
        (
            "A manager of a newer release stored the resource; the manager that answered cannot "
            "read it."
        ),
        (
            "Ask a manager of that release; after an upgrade, restart the managers of the earlier "
            "release."
        ),
    ),
    "infeasible": ProblemType(
        409,
        "No agent of the resource group could ever run the workload.",
        "Request fewer resources.",
    ),
    "internal-error": ProblemType(500, "The manager failed.", "Search its log for the request id."),
    "invalid-input": ProblemType(
        422, "Fields have invalid values; `errors` lists them.", "Correct them."
    ),
    "length-required": ProblemType(
        411,
        "The request does not state the length of its body.",
        "Send the header Content-Length.",
    ),
    "limit-exceeded": ProblemType(
        403,
        (
            "The session exceeds a limit of the resource group, the key or the template; `errors` "
            "has the field, the limit and the groups that would accept it."
        ),
        "Request less, or use one of these groups.",
    ),
    "malformed-body": ProblemType(
        400, "The body is not JSON.", "Correct it at the named position."
    ),
    "malformed-request": ProblemType(
        400, "The request violates HTTP or a limit.", "Use an HTTP library."
    ),
    "method-not-allowed": ProblemType(
        405,
        "The resource does not support this method.",
        "Use a method that the Allow header lists.",
    ),
    "not-found": ProblemType(
        404,
        "The resource does not exist, or the caller may not see it.",
        "List the existing resources.",
    ),
    "precondition-failed": ProblemType(
        412, "The resource has changed since it was read.", "Read it again and repeat."
    ),
    "provider-failed": ProblemType(
        502, "The OpenID provider did not answer as expected.", "Try again."
    ),
    "proxy-unreachable": ProblemType(
        502, "The proxy does not answer the console.", "Start the proxy."
    ),
    "quota": ProblemType(
        409, "A quota is used up.", "Wait, stop something, or ask for a larger quota."
    ),
    "request-timeout": ProblemType(408, "The body did not arrive in time.", "Send it faster."),
    "sign-in-refused": ProblemType(
        403, "The user of the OpenID provider may not sign in here.", "Ask an administrator."
    ),
    "store-unavailable": ProblemType(
        503, "The database is unavailable.", "Wait for the time in Retry-After."
    ),
    "too-many-attempts": ProblemType(
        429, "Too many failed sign-ins.", "Wait for the time in Retry-After."
    ),
    "unauthenticated": ProblemType(
        401, "The request has no valid key or console session.", "Send a valid key."
    ),
    "unsupported-media-type": ProblemType(
        415, "The body is not application/json.", "Set Content-Type."
    ),
}


def type_of(code: str) -> str:
    """The address of a problem's type, relative to the manager."""
    return f"{DOCS_PATH}#{code}" if code in TYPES else "about:blank"


def document() -> Iterator[str]:
    """The lines of the reference page about problem types."""
    yield "# Problems"
    yield ""
    yield (
        "Errors of the REST API are problem documents (RFC 9457): `code` is stable, `type` is its "
        "address on the"
    )
    yield "manager, `detail` says what happened to this request, and `next_step` what to do."

    for code, problem in TYPES.items():
        yield ""
        yield f"## {code}"
        yield ""
        yield f"HTTP {problem.status}. {problem.text} {problem.cure}"
