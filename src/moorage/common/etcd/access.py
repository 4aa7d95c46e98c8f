"""Access to etcd: endpoints, credentials and errors. It imports no HTTP client, because agents keep
it in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.common.config.etcd_address import endpoints_of
from moorage.common.model.errors import MoorageError

if TYPE_CHECKING:
    import ssl

    from moorage.common.config.etcd_settings import EtcdSettings


class EtcdError(MoorageError):
    """etcd refused the call."""

    code = "etcd"


class EtcdUnavailable(EtcdError):
    """No endpoint of etcd answered."""

    code = "etcd-unavailable"


@dataclass(frozen=True)
class EtcdAccess:
    """How to reach etcd. ``endpoints``: URLs. ``prefix``: the prefix of all this cluster's keys,
    ending with a slash. Without ``authority``, the system's certificates are trusted."""

    endpoints: tuple[str, ...]
    user: str = ""
    password: str = field(default="", repr=False)
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    prefix: str = "/moorage/"

    def ssl_context(self) -> ssl.SSLContext | None:
        """Create the TLS context. Raises ``EtcdError`` if a file cannot be used."""
        if not self.endpoints[0].startswith("https://"):
            return None

        import ssl

        try:
            context = ssl.create_default_context(cafile=self.authority)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:
            raise EtcdError(
                f"the certificates for etcd cannot be used: {error}",
                next_step="check etcd.ca, etcd.certificate and etcd.key",
            ) from error

        return context


def etcd_access(settings: EtcdSettings, address: str = "") -> EtcdAccess | None:
    """Access to the etcd at ``address``, by default the one in the settings. None if neither names
    an etcd."""
    if not (address or settings.address):
        return None

    return EtcdAccess(
        endpoints_of(address or settings.address),
        user=settings.user,
        password=settings.password or "",
        authority=settings.ca,
        certificate=settings.certificate,
        key=settings.key,
        prefix=settings.prefix,
    )
