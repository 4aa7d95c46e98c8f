"""Addresses of etcd in settings: ``etcd://one:2379,two:2379``, or ``etcds://…`` with TLS. Pure."""

from __future__ import annotations

from moorage.common.model.addresses import split_addresses

_SCHEMES = {"etcd://": "http", "etcds://": "https"}


def is_etcd(value: str) -> bool:
    return value.strip().startswith(tuple(_SCHEMES))


def endpoints_of(value: str) -> tuple[str, ...]:
    """Return the URLs of the endpoints in ``value``. Raises ``ValueError`` for any other form."""
    text = value.strip()
    for prefix, scheme in _SCHEMES.items():
        if text.startswith(prefix):
            try:
                addresses = split_addresses(text.removeprefix(prefix))
            except ValueError as error:
                raise ValueError(f"{value!r} does not name endpoints of etcd: {error}") from None

            return tuple(f"{scheme}://{address}" for address in addresses)

    raise ValueError(
        f"{value!r} is not an address of etcd: write etcd://one:2379,two:2379, or etcds:// with TLS"
    )


def check_etcd_address(value: str) -> str:
    if value:
        endpoints_of(value)
    return value


def check_manager_addresses(value: str) -> str:
    """Check the addresses of managers, or of the etcd in which they are registered."""
    if is_etcd(value):
        endpoints_of(value)
    else:
        split_addresses(value)
    return value
