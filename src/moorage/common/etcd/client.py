"""Client for etcd's v3 JSON gateway: several endpoints, TLS, users, leases and watches.

Every call is bounded and safe to repeat. A write whose reply did not arrive may still be applied
half a minute later, when etcd has its quorum again. docs/decisions/0039-etcd.md explains why
Moorage has its own client.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Self

import aiohttp

from moorage.common.etcd import wire
from moorage.common.etcd.access import EtcdAccess, EtcdError, EtcdUnavailable

# A member that has lost its leader takes 7 s to answer; a member that follows the new leader takes
# 1 s.
ATTEMPT_S = 2.0
CALL_S = 8.0
# A watch sends nothing while nothing changes, and neither does a broken connection. The prefix is
# therefore read again after this time.
WATCH_S = 60.0
_RETRY_PAUSE_S = 0.1
# gRPC codes after which another endpoint or a later attempt may succeed: deadline exceeded,
# aborted, internal, unavailable. The code for a full database is not among them, because the
# database stays full until an operator acts.
_TRANSIENT = frozenset({4, 10, 13, 14})


class EtcdClient:
    """An async context manager. Calls raise ``EtcdUnavailable`` if no endpoint answers within
    ``CALL_S``, and ``EtcdError`` if etcd refuses the call."""

    def __init__(self, access: EtcdAccess) -> None:
        self.access = access
        self._endpoints = list(access.endpoints)
        # A token belongs to one member, which keeps it in memory.
        self._tokens: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        context = self.access.ssl_context()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context if context is not None else True),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    async def authenticate(self) -> None:
        """Get a token from every endpoint in advance. Otherwise, the first call to an endpoint
        requests the token, which needs a quorum."""
        for endpoint in tuple(self._endpoints):
            try:
                await self._headers(endpoint)
            except (aiohttp.ClientError, ValueError, OSError) as error:
                raise EtcdUnavailable(f"{endpoint}: {error}") from error

    async def health(self) -> dict[str, str]:
        """For each endpoint, explain why it is not healthy; "" if it is. The check needs no etcd
        user.

        An endpoint is not healthy if it has no quorum or an alarm is raised."""
        found = await asyncio.gather(
            *(self._health(endpoint) for endpoint in self.access.endpoints)
        )
        return dict(zip(self.access.endpoints, found, strict=True))

    async def _health(self, endpoint: str) -> str:
        try:
            async with asyncio.timeout(CALL_S), self._session.get(f"{endpoint}/health") as reply:
                found = json.loads(await reply.text(errors="replace"))
        except TimeoutError:
            return f"no answer within {CALL_S:g} s"
        except (aiohttp.ClientError, ValueError, OSError) as error:
            return str(error) or type(error).__name__

        if isinstance(found, dict) and str(found.get("health")).lower() == "true":
            return ""

        return "an alarm is raised, or it has no leader"

    # -- keys --------------------------------------------------------------------------------------

    async def read(self, prefix: str, *, stale: bool = False) -> wire.KeySnapshot:
        """Read all keys that begin with ``prefix``. With ``stale``, read from the endpoint even
        without a quorum."""
        request = wire.prefix_request(prefix) | ({"serializable": True} if stale else {})
        return wire.read_snapshot(await self._call("/v3/kv/range", request))

    async def value(self, key: str) -> str:
        """Value of ``key``, or "" if there is none."""
        found = wire.read_snapshot(
            await self._call("/v3/kv/range", {"key": wire.encoded(key)})
        ).entries
        return found[key].value if key in found else ""

    async def put(self, key: str, value: str, lease: str = "") -> None:
        request = {"key": wire.encoded(key), "value": wire.encoded(value)}
        await self._call("/v3/kv/put", request | ({"lease": lease} if lease else {}))

    async def delete(self, key: str) -> None:
        await self._call("/v3/kv/deleterange", {"key": wire.encoded(key)})

    async def commit(
        self, compare: Sequence[dict[str, Any]], success: Sequence[dict[str, Any]]
    ) -> bool:
        """Apply ``success`` if all of ``compare`` hold. Returns whether they did. The transaction
        is sent only once. After ``EtcdUnavailable``, it may have been applied, or may be applied
        later."""
        reply = await self._call("/v3/kv/txn", wire.transaction(compare, success), once=True)
        return bool(reply.get("succeeded", False))

    # -- leases ------------------------------------------------------------------------------------

    async def grant(self, ttl_s: int) -> str:
        """Create a lease. A lease whose response was lost expires unused."""
        reply = await self._call("/v3/lease/grant", {"TTL": str(ttl_s)})
        return str(reply["ID"])

    async def keep_alive(self, lease: str) -> bool:
        """Renew the lease. Returns whether it still exists."""
        reply = await self._call("/v3/lease/keepalive", {"ID": lease})
        return int(reply.get("result", {}).get("TTL", 0)) > 0

    async def revoke(self, lease: str) -> None:
        await self._call("/v3/lease/revoke", {"ID": lease})

    # -- watches -----------------------------------------------------------------------------------

    async def follow(self, prefix: str) -> AsyncGenerator[wire.KeySnapshot, None]:
        """Yield all keys below ``prefix`` now, and again whenever they may have changed: after a
        change, a compaction, or ``WATCH_S`` of silence. It ends with ``EtcdError``; the caller
        starts it again after a pause."""
        while True:
            snapshot = await self.read(prefix)
            yield snapshot
            try:
                await asyncio.wait_for(self._next_change(prefix, snapshot.revision + 1), WATCH_S)
            except TimeoutError:
                continue

    async def _next_change(self, prefix: str, start_revision: int) -> None:
        """Return when a key below ``prefix`` has changed or the watch has ended."""
        endpoint = self._endpoints[0]
        try:
            headers = await self._headers(endpoint)
            request = wire.watch_request(prefix, start_revision)
            async with self._session.post(
                f"{endpoint}/v3/watch", json=request, headers=headers
            ) as reply:
                if reply.status == 401:
                    self._tokens.pop(endpoint, None)
                    return

                while line := await reply.content.readline():
                    message = json.loads(line)
                    if wire.is_change(message) or wire.is_canceled(message):
                        return
        except (aiohttp.ClientError, ValueError, OSError) as error:
            self._rotate(endpoint)
            raise EtcdUnavailable(f"the watch at {endpoint} ended: {error}") from error

    # -- calls -------------------------------------------------------------------------------------

    async def _call(
        self, path: str, request: dict[str, Any], *, once: bool = False
    ) -> dict[str, Any]:
        """Try the endpoints in turn until one answers, all have refused, or ``CALL_S`` has passed.

        With ``once``, another endpoint is tried only if the previous attempt cannot have
        arrived."""
        problems: dict[str, str] = {}
        refusals = 0  # in a row
        try:
            async with asyncio.timeout(CALL_S):
                while refusals < len(self._endpoints):
                    endpoint = self._endpoints[0]
                    try:
                        return await self._attempt(endpoint, path, request)
                    except EtcdUnavailable as error:
                        problems[endpoint] = error.message
                        self._rotate(endpoint)
                        refused = isinstance(error.__cause__, aiohttp.ClientConnectorError)
                        if once and not refused:
                            break

                        refusals = refusals + 1 if refused else 0

                    await asyncio.sleep(_RETRY_PAUSE_S)
        except TimeoutError:
            problems.setdefault(self._endpoints[0], f"no answer within {CALL_S:g} s")

        message = "; ".join(f"{endpoint}: {problem}" for endpoint, problem in problems.items())
        raise EtcdUnavailable(
            message,
            next_step=_explain(message) or "check etcd.address, and `etcdctl endpoint health`",
        )

    async def _attempt(self, endpoint: str, path: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ATTEMPT_S):
                status, reply = await self._post(
                    endpoint, path, request, await self._headers(endpoint)
                )
                if status == 401 and self._tokens.pop(endpoint, ""):  # the member was restarted
                    status, reply = await self._post(
                        endpoint, path, request, await self._headers(endpoint)
                    )
        except TimeoutError as error:
            raise EtcdUnavailable(f"no answer within {ATTEMPT_S:g} s") from error
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise EtcdUnavailable(str(error) or type(error).__name__) from error

        if status == 200:
            return reply

        message = str(reply.get("error") or reply.get("message") or f"HTTP {status}")
        if status >= 500 or reply.get("code") in _TRANSIENT:
            raise EtcdUnavailable(message)

        raise EtcdError(
            f"etcd at {endpoint} refuses {path}: {message}", next_step=_explain(message)
        )

    async def _post(
        self, endpoint: str, path: str, request: dict[str, Any], headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        async with self._session.post(endpoint + path, json=request, headers=headers) as reply:
            text = await reply.text(errors="replace")
            try:
                found = json.loads(text)
            except ValueError:
                found = {"error": text.strip()[:200]}
            return reply.status, found if isinstance(found, dict) else {"error": text[:200]}

    async def _headers(self, endpoint: str) -> dict[str, str]:
        """The token for this member, obtained with the password if there is none yet."""
        if not self.access.user:
            return {}

        if endpoint not in self._tokens:
            request = {"name": self.access.user, "password": self.access.password}
            status, reply = await self._post(endpoint, "/v3/auth/authenticate", request, {})
            if status >= 500:
                raise EtcdUnavailable(str(reply.get("error") or f"HTTP {status}"))

            if "token" not in reply:
                raise EtcdError(
                    f"etcd at {endpoint} refuses the user {self.access.user!r}: "
                    f"{reply.get('error', status)}",
                    next_step=_explain(str(reply.get("error")))
                    or "check etcd.user and etcd.password",
                )

            self._tokens[endpoint] = str(reply["token"])

        return {"Authorization": self._tokens[endpoint]}

    def _rotate(self, endpoint: str) -> None:
        if self._endpoints[0] == endpoint:
            self._endpoints.append(self._endpoints.pop(0))


def _explain(message: str) -> str:
    if "user name is empty" in message:
        return "etcd requires a user: set etcd.user and etcd.password"

    if "BAD_CERTIFICATE" in message or "CERTIFICATE_REQUIRED" in message:
        return (
            "etcd requires a certificate issued by its --trusted-ca-file: set etcd.certificate "
            "and etcd.key"
        )

    if "CommonName of client" in message:
        return (
            "use an etcd.certificate without a common name: etcd.user and etcd.password name "
            "the user"
        )

    if "permission denied" in message:
        return "grant the role of etcd.user readwrite access to the prefix etcd.prefix"

    if "database space exceeded" in message:
        return (
            "etcd is full and accepts no writes: `etcdctl compact REVISION`, `etcdctl defrag` at "
            "each member, then `etcdctl alarm disarm`; set --auto-compaction-retention"
        )

    return ""
