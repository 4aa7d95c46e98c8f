"""Transport to a HEAppE server: authentication with one login at a time, time limits, and circuits.

A call that may have had an effect is never repeated here, neither by us nor by aiohttp, which
repeats PUT and DELETE after a connection reset.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import aiohttp
import structlog

from moorage.agent.runtimes.heappe import wire
from moorage.agent.runtimes.heappe.circuit import Circuit
from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault, classify
from moorage.common.aio.clock import Clock

log = structlog.get_logger("moorage.agent.heappe")
_MAX_ANSWER = 64 * 1024 * 1024
_CONNECT_S = 10.0
_KEEP_ALIVE_S = 15.0
# After credentials were refused, nothing is sent for this time, and for eight times as long after
# each further refusal, because sites lock accounts.
FIRST_REFUSED_S = 30.0
LONGEST_REFUSED_S = 960.0


@dataclass(frozen=True, slots=True)
class Account:
    """An account. ``auth``: how calls authenticate. ``secret``: the password, or the token for
    ``bearer``. ``secret_file``: the secret's file, which is read again when the secret is
    refused."""

    url: str
    user: str = ""
    secret: str = field(default="", repr=False)
    auth: Literal["api-key", "session", "bearer"] = "api-key"
    secret_file: Path | None = None


class _Interrupted(aiohttp.ClientError):
    """The connection broke during a call. aiohttp does not repeat a request after this error."""


async def _never_repeat(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Interrupted(str(error) or type(error).__name__) from error


class HeappeTransport:
    """The transport, which raises only ``HeappeFailed``. ``calls`` counts the calls by name."""

    def __init__(self, account: Account, clock: Clock) -> None:
        self._account = account
        self._clock = clock
        self._base = f"{account.url.rstrip('/')}/heappe"
        self._sessions: tuple[aiohttp.ClientSession, aiohttp.ClientSession] | None = None
        self._login = asyncio.Lock()
        self._code = ""
        self._refused: tuple[float, HeappeFailed] | None = None
        self._refusals = 0
        self._circuits: dict[int, Circuit] = {}
        self.calls: Counter[str] = Counter()

    async def close(self) -> None:
        sessions = self._sessions
        self._sessions = None
        for session in sessions or ():
            await session.close()

    def circuit(self, cluster_id: int) -> Circuit:
        return self._circuits.setdefault(cluster_id, Circuit(str(cluster_id)))

    @asynccontextmanager
    async def stream(
        self, call: wire.HeappeCall, body: dict[str, Any]
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Make a call without a time limit. Leaving the context cancels it. The answer reports an
        expired session, which the caller renews."""
        await self._check_refusal()
        code = await self._session_code()
        data = wire.encode(call, body | ({"SessionCode": code} if code else {}))
        async with self._request(call, data, {}, self._auth_headers(), stream=True) as response:
            if response.status != 200:
                failed = classify(
                    response.status, response.content_type, await _read(response), call=call.name
                )
                self._note_refusal(failed)
                raise failed

            yield response.content

    # Authentication.

    async def renew_session(self, used: str) -> bool:
        """Log in again after the code ``used`` was refused. Returns False if it would not help. One
        login serves all callers. A server that returns the same code had another reason to refuse.
        Without sessions, the secret itself is read again."""
        if self._account.auth != "session":
            return await self._read_secret()

        async with self._login:
            if self._code != used:
                return True

            self._code = await self._authenticate()
            return self._code != used

    @property
    def session_code(self) -> str:
        """The code in use; empty without sessions."""
        return self._code

    async def _session_code(self) -> str:
        if self._account.auth != "session" or self._code:
            return self._code
        async with self._login:
            if not self._code:
                self._code = await self._authenticate()
            return self._code

    async def _authenticate(self) -> str:
        while True:
            credentials = {
                "Credentials": {"Username": self._account.user, "Password": self._account.secret}
            }
            try:
                data = wire.encode(wire.AUTHENTICATE, credentials)
                code = await self._send(wire.AUTHENTICATE, data, {}, {}, login=True)
            except HeappeFailed as error:
                if error.problem is SiteFault.CREDENTIALS and await self._read_secret():
                    continue

                self._note_refusal(error)
                raise

            break

        if not isinstance(code, str) or code == "HEADER-AUTH-NEEDED":
            raise HeappeFailed(
                SiteFault.CREDENTIALS, "this server requires a bearer token", call="login"
            )

        return code

    async def _check_refusal(self) -> None:
        """Check for refused credentials. Raises ``HeappeFailed`` as long as they are considered
        refused, unless there are new ones."""
        if (refused := self._refused) is None:
            return
        until, said = refused
        if self._clock.monotonic() < until and not await self._read_secret():
            raise HeappeFailed(
                said.problem, said.detail, call=said.call, status=said.status, unsent=True
            )

    async def _read_secret(self) -> bool:
        """Read the secret's file again. Returns True if the secret has changed."""
        path = self._account.secret_file
        if path is None:
            return False

        try:
            secret = (await asyncio.to_thread(path.read_text)).strip()
        except (OSError, ValueError) as error:
            log.warning(
                "the secret of the site cannot be read again", path=str(path), why=str(error)
            )
            return False

        if not secret or secret == self._account.secret:
            return False

        log.info("the secret of the site has changed", path=str(path))
        self._account = replace(self._account, secret=secret)
        self._code = ""
        self._refused = None
        self._refusals = 0

        return True

    def _note_refusal(self, error: HeappeFailed) -> None:
        if error.problem is SiteFault.CREDENTIALS:
            pause_s = min(FIRST_REFUSED_S * 8.0 ** min(self._refusals, 10), LONGEST_REFUSED_S)
            self._refusals += 1
            self._refused = self._clock.monotonic() + pause_s * self._clock.jitter(0.2), error

    def _auth_headers(self) -> dict[str, str]:
        account = self._account
        if account.auth == "api-key":
            return {"X-API-Key": f"{account.user}:{account.secret}"}
        return {"Authorization": f"Bearer {account.secret}"} if account.auth == "bearer" else {}

    # Transport.

    async def call(
        self,
        call: wire.HeappeCall,
        body: dict[str, Any] | None = None,
        *,
        query: dict[str, str] | None = None,
        form: aiohttp.FormData | None = None,
        cluster_id: int | None = None,
        anonymous: bool = False,
    ) -> Any:
        """Make a call, and repeat it after a login. With ``cluster_id``, its circuit applies."""
        if anonymous:
            return await self._send(call, None, {}, {})

        await self._check_refusal()
        circuit = self.circuit(cluster_id) if cluster_id is not None else None
        if circuit is not None:
            circuit.check(self._clock.monotonic(), call.name)

        try:
            answer = await self._with_session(call, body, query or {}, form)
        except HeappeFailed as error:
            if circuit is not None:
                if error.is_outage:
                    circuit.failed(self._clock.monotonic(), error.message, self._clock.jitter(0.2))
                else:
                    circuit.succeeded()

            raise

        self._refused = None
        self._refusals = 0
        if circuit is not None:
            circuit.succeeded()

        return answer

    async def _with_session(
        self,
        call: wire.HeappeCall,
        body: dict[str, Any] | None,
        query: dict[str, str],
        form: aiohttp.FormData | None,
    ) -> Any:
        for attempt in range(2):
            code = await self._session_code()
            in_query = {"SessionCode": code} if code and (body is None) else {}
            in_body = {"SessionCode": code} if code and body is not None else {}
            data = wire.encode(call, body | in_body) if body is not None else None
            try:
                return await self._send(
                    call, data, query | in_query, self._auth_headers(), form=form
                )
            except HeappeFailed as error:
                is_refusal = (
                    error.problem is SiteFault.CREDENTIALS and self._account.auth != "session"
                )
                if error.problem is not SiteFault.SESSION and not is_refusal:
                    raise
                # The first use consumes a form.
                if attempt or form is not None or not await self.renew_session(code):
                    raise self._refusal(error) from None

        raise AssertionError("unreachable")

    def _refusal(self, error: HeappeFailed) -> HeappeFailed:
        """The meaning of an answer that asks for a login when logging in does not help."""
        problem = SiteFault.FORBIDDEN if self._account.auth == "session" else SiteFault.CREDENTIALS
        meant = HeappeFailed(problem, error.detail, call=error.call, status=error.status)
        self._note_refusal(meant)
        return meant

    async def _send(
        self,
        call: wire.HeappeCall,
        data: bytes | None,
        query: dict[str, str],
        headers: dict[str, str],
        *,
        form: aiohttp.FormData | None = None,
        login: bool = False,
    ) -> Any:
        async with self._request(call, data, query, headers, form=form) as response:
            body = await _read(response)
            if response.status not in (200, 204):
                raise classify(
                    response.status, response.content_type, body, call=call.name, login=login
                )

            if not body:
                return None

            try:
                return json.loads(body)
            except ValueError:
                raise HeappeFailed(
                    SiteFault.GATEWAY,
                    f"the answer is not JSON: {body[:100].decode(errors='replace')}",
                    call=call.name,
                    status=response.status,
                ) from None

    @asynccontextmanager
    async def _request(
        self,
        call: wire.HeappeCall,
        data: bytes | None,
        query: dict[str, str],
        headers: dict[str, str],
        *,
        form: aiohttp.FormData | None = None,
        stream: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        self.calls[call.name] += 1
        once, pooled = self._open()
        session = pooled if call.repeatable or call.path.startswith("DataTransfer/Http") else once
        headers = headers | {"Accept-Language": "en"}
        if data is not None:
            headers["Content-Type"] = "application/json"

        timeout = aiohttp.ClientTimeout(
            total=None if stream else call.timeout_s, connect=_CONNECT_S, sock_connect=_CONNECT_S
        )
        try:
            async with session.request(
                call.method,
                f"{self._base}/{call.path}",
                params=query,
                data=form if form is not None else data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            unsent = isinstance(
                error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
            )
            raise HeappeFailed(SiteFault.UNREACHABLE, why, call=call.name, unsent=unsent) from None

    def _open(self) -> tuple[aiohttp.ClientSession, aiohttp.ClientSession]:
        """Open a session with a fresh connection for each call, and another session that keeps its
        connections."""
        if self._sessions is None:
            fresh = aiohttp.TCPConnector(force_close=True, limit=0)
            kept = aiohttp.TCPConnector(keepalive_timeout=_KEEP_ALIVE_S, limit=0)
            self._sessions = (
                aiohttp.ClientSession(connector=fresh, middlewares=(_never_repeat,)),
                aiohttp.ClientSession(connector=kept, middlewares=(_never_repeat,)),
            )
        return self._sessions


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts = []
    size = 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > _MAX_ANSWER:
            raise HeappeFailed(SiteFault.INTERNAL, f"the answer has more than {_MAX_ANSWER} bytes")
    return b"".join(parts)
