"""Faults in signing in: ID tokens, rules, limits of attempts, console sessions. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

TOKENS, PROVIDER = "manager/oidc/tokens.py", "manager/oidc/provider.py"
AUTHENTICATION = "manager/api/authentication.py"
ID_TOKENS = ("tests/unit/manager/test_oidc.py",)
CLIENT = ("tests/wire/test_oidc_client.py",)
PEOPLE = ("tests/store/test_oidc.py",)
SESSIONS = ("tests/store/test_console_sessions.py",)

MUTATIONS = (
    Mutation(
        "an ID token of another attempt is accepted",
        TOKENS,
        'if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):',
        "if False:",
        ID_TOKENS,
    ),
    Mutation(
        "an ID token for another client is accepted",
        TOKENS,
        'aud={"essential": True, "value": client_id}',
        'aud={"essential": True}',
        ID_TOKENS,
    ),
    Mutation(
        "an ID token may be signed with the public key",
        TOKENS,
        "algorithms=ALGORITHMS)",
        'algorithms=[*ALGORITHMS, "HS256"])',
        ID_TOKENS,
    ),
    Mutation(
        "claims about another person count",
        PROVIDER,
        'if told.get("sub") != claims["sub"]:',
        "if False:",
        CLIENT,
    ),
    Mutation(
        "the first piece of an answer counts as all of it",
        PROVIDER,
        "async for piece in answer.content.iter_any():",
        "for piece in [await answer.content.readany()]:",
        CLIENT,
    ),
    Mutation(
        "a rule replaces what was set by hand",
        "manager/store/sql/oidc_grant.sql",
        "m.role IS NOT DISTINCT FROM i.granted_projects ->> w.key AS is_ours",
        "true AS is_ours",
        PEOPLE,
    ),
    Mutation(
        "an open page keeps a console session alive",
        AUTHENTICATION,
        "is_act=not renewed and BACKGROUND not in request.headers",
        "is_act=True",
        SESSIONS,
    ),
    Mutation(
        "what a page asks by itself hides an act from the idle expiry",
        AUTHENTICATION,
        '"act" if is_act else "console"',
        '"console"',
        SESSIONS,
    ),
    Mutation(
        "an address may try any number of names",
        "manager/api/console_sessions.py",
        "if seconds := console.attempts.take(address, now):",
        "if seconds := 0:",
        SESSIONS,
    ),
)
