"""Mutations of the proxy's apps: credentials and headers that cross it, and slow transfers."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

CREDENTIALS = ("tests/unit/proxy/test_app_credentials.py",)
ASSERTED = ("tests/unit/proxy/test_asserted_headers.py",)
PEERS = "tests/conformance/planes/test_trusted_proxies.py"
SLOW = "tests/conformance/planes/test_slow_transfers.py"
CLIENTS = "tests/wire/test_proxy_app_clients.py"

MUTATIONS = (
    Mutation(
        "programs that keep cookies send a token each time",
        "proxy/apps/handler.py",
        '            if grant.source == "query" and request.method in ("GET", "HEAD"):\n',
        "            if False:\n",
        ("tests/wire/test_proxy_apps.py", "-k", "keep_cookies"),
    ),
    Mutation(
        "an app gets a token of Moorage that is only known from the table",
        "proxy/apps/admission.py",
        "    return sha256 in table.access_tokens or table.find_key(sha256, 0) is not None\n",
        "    return False\n",
        CREDENTIALS,
    ),
    Mutation(
        "an app does not get its own token in the query",
        "proxy/apps/credentials.py",
        "(bool(secret) and is_of_moorage(secret))",
        "bool(secret)",
        CREDENTIALS,
    ),
    Mutation(
        "an app gets a credential of Moorage inside Basic",
        "proxy/apps/admission.py",
        'given.source in ("header", "basic") and',
        'given.source == "header" and',
        CREDENTIALS,
    ),
    Mutation(
        "an app gets a credential of Moorage inside Basic without padding",
        "proxy/apps/credentials.py",
        'base64.b64decode(rest.rstrip("=") + "==", altchars=b"-_")',
        "base64.b64decode(rest, validate=True)",
        CREDENTIALS,
    ),
    Mutation(
        "a key in an address opens an app",
        "proxy/apps/credentials.py",
        'TAKES_KEYS: frozenset[CredentialSource] = frozenset({"header", "basic"})',
        'TAKES_KEYS: frozenset[CredentialSource] = frozenset({"header", "basic", "query"})',
        CREDENTIALS,
    ),
    Mutation(
        "a page of another site acts with the password that a browser knows",
        "proxy/apps/credentials.py",
        'frozenset({"basic", "cookie"})',
        'frozenset({"cookie"})',
        ("tests/unit/proxy/test_app_admission.py",),
    ),
    Mutation(
        "a program that sends a token in the address is redirected",
        "proxy/apps/handler.py",
        '(grant.source == "query" and not opens_page)',
        "False",
        (CLIENTS, "-k", "as_their_servers"),
    ),
    Mutation(
        "a browser asks for a password in the middle of a page",
        "proxy/apps/error_response.py",
        'or headers.get("User-Agent", "").startswith("Mozilla/")',
        "or False",
        CREDENTIALS,
    ),
    Mutation(
        "an app believes what an untrusted client says about itself",
        "proxy/apps/headers.py",
        "if forwarded or not is_asserted(lower):",
        "if True:",
        ASSERTED,
    ),
    Mutation(
        "an engine believes what an untrusted client says about itself",
        "proxy/core/headers.py",
        "(is_trusted or not is_asserted(name))",
        "True",
        ASSERTED,
    ),
    Mutation(
        "a header with another separator is not recognized as an assertion",
        "proxy/core/asserted_headers.py",
        '_SEPARATOR.sub("-", name.lower())',
        "name.lower()",
        ASSERTED,
    ),
    Mutation(
        "a head remembered of a trusted web server is used for a client",
        "proxy/planes/asyncio/client.py",
        "self._plane.heads_of_trusted if self._is_trusted else self._plane.heads",
        "self._plane.heads",
        (PEERS, "-k", "replica and not simple"),
    ),
    Mutation(
        "the other plane takes all clients for trusted",
        "proxy/planes/simple/upstream.py",
        "is_trusted = self._trusted.contains(request.remote)",
        "is_trusted = True",
        (PEERS, "-k", "replica and simple"),
    ),
    Mutation(
        "a slow upload to an app is cut while it makes progress",
        "common/http/server.py",
        "    while True:\n        async with asyncio.timeout(pause_s):",
        (
            "    ends_at = asyncio.get_running_loop().time() + pause_s\n"
            "    while True:\n"
            "        async with asyncio.timeout_at(ends_at):"
        ),
        (SLOW, "-k", "upload and asyncio"),
    ),
    Mutation(
        "a body for an app that stops is a fault of the proxy",
        "proxy/apps/handler.py",
        "except (aiohttp.ClientError, TimeoutError) as error:",
        "except aiohttp.ClientError as error:",
        (SLOW, "-k", "stops_is and asyncio"),
    ),
    Mutation(
        "a response goes on waiting whose body has stopped",
        "proxy/apps/handler.py",
        "                reset(connection.transport)\n",
        "                pass\n",
        (SLOW, "-k", "stops_after and asyncio"),
    ),
)
