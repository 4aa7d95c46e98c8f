"""Webhooks: one signed POST for each event, only to addresses that the guard allows."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path

import aiohttp

from moorage.common.aio.clock import Clock
from moorage.common.http.guarded_session import DestinationGuard, Resolve
from moorage.common.model.destinations import Destination, DestinationPolicy, is_public, parse
from moorage.common.model.errors import InvalidInput
from moorage.common.model.printable import printable
from moorage.manager.notifications import signing
from moorage.manager.notifications.result import MAX_ANSWER, AttemptResult

TIMEOUT_S = 10.0
_CONNECT_S = 5.0
_GONE = 410


class Webhooks:
    """``hosts``: hosts and networks that are allowed although they are not public. ``ca``:
    additional CA certificates."""

    def __init__(
        self,
        hosts: Sequence[str],
        ca: Path | None,
        clock: Clock,
        *,
        version: str,
        resolve: Resolve | None = None,
    ) -> None:
        policy = DestinationPolicy(tuple(hosts), plain_http=True)
        self._guard = DestinationGuard(policy, resolve)
        self._policy = policy
        self._ca = ca
        self._clock = clock
        self._agent = f"Moorage/{version}"

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._ca is not None:
            context.load_verify_locations(self._ca)
        return context

    async def check(self, url: str) -> Destination:
        """Check a URL. Raises ``InvalidInput`` with the field ``target``: for http to a public host
        too."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                destination = await self._guard.check(url)
        except InvalidInput as error:
            raise InvalidInput(
                error.message, field="target", next_step=error.next_step or _ALLOWED
            ) from None
        except TimeoutError:
            host = parse(url, self._policy).raw_host
            raise InvalidInput(
                f"the host {host!r} could not be resolved within {_CONNECT_S:.0f} s",
                field="target",
                next_step="try again, or check the name server",
            ) from None

        is_plain = destination.url.scheme == "http"
        if is_plain and any(
            is_public(ip_address(text.partition("%")[0])) for text in destination.addresses
        ):
            raise InvalidInput(
                f"{url[:200]!r} is not encrypted", field="target", next_step="use https"
            )
        return destination

    async def send(
        self, url: str, secrets: Sequence[str], message_id: str, body: bytes
    ) -> AttemptResult:
        """Send a body. Never raises because of the receiver. ``secrets``: those that sign it."""
        try:
            destination = await self.check(url)
        except InvalidInput as error:
            return AttemptResult(False, error.message[:MAX_ANSWER])

        now = int(self._clock.now().timestamp())
        headers = signing.headers(secrets, message_id, now, body) | {
            "content-type": "application/json",
            "user-agent": self._agent,
        }
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._post(destination, headers, body)
        except TimeoutError:
            return AttemptResult(False, f"no complete answer within {TIMEOUT_S:.0f} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            text = printable(str(error) or type(error).__name__, one_line=True)
            return AttemptResult(False, text[:MAX_ANSWER])

    async def _post(
        self, destination: Destination, headers: dict[str, str], body: bytes
    ) -> AttemptResult:
        async with (
            self._guard.session(
                destination,
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S, sock_connect=_CONNECT_S),
            ) as session,
            session.post(
                destination.url,
                data=body,
                headers=headers,
                allow_redirects=False,
                ssl=self._tls,
            ) as response,
        ):
            status = response.status
            # A receiver may answer without end; nothing after the first bytes is read.
            shown = await response.content.read(MAX_ANSWER)
            response.close()

        text = printable(shown.decode("utf-8", "replace"), one_line=True)
        answer = f"{status} {text}".strip()[:MAX_ANSWER]
        if 300 <= status < 400:
            answer = f"{status}: redirects are not followed; set the final URL"
        return AttemptResult(200 <= status < 300, answer, gone=status == _GONE)


_ALLOWED = "use a public https URL, or ask an administrator to allow the host in webhook_hosts"
