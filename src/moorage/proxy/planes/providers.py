"""Outside providers: the addresses to which a data plane may connect, and their authentication."""

from __future__ import annotations

import ssl
from functools import cached_property

from moorage.common.config.settings import ProxySettings
from moorage.common.http.guarded_session import DestinationGuard
from moorage.common.link.messages import Target
from moorage.common.model.destinations import DestinationPolicy
from moorage.common.model.errors import InvalidInput


class Providers:
    """Outside providers. A provider's addresses are checked at each connection, regardless of the
    result when its endpoint was created."""

    def __init__(self, settings: ProxySettings) -> None:
        self._guard = DestinationGuard(DestinationPolicy(settings.provider_hosts))
        self._ca = settings.provider_ca

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """The TLS context. Raises ``OSError`` if ``proxy.provider_ca`` cannot be read."""
        context = ssl.create_default_context()
        if self._ca is not None:
            context.load_verify_locations(self._ca)
        return context

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """A provider's addresses. Raises ``OSError``, also if the proxy may not connect to them."""
        shown = f"[{host}]" if ":" in host else host
        try:
            return (await self._guard.check(f"https://{shown}:{port}/")).addresses
        except InvalidInput as error:
            raise OSError(str(error)) from error


def pool_address(target: Target) -> tuple[str, int]:
    """The pool key for connections to a provider, which are never used for a replica at the same
    address."""
    return f"tls/{target.host}", target.port
