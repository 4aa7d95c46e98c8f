"""Checks of the certificates named in this machine's settings, which nothing renews
automatically."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from cryptography import x509

from moorage.common.config.settings import Settings
from moorage.server.doctor.checks import CheckResult, Status

_DAY_S = 86_400
_SOON_S = 14 * _DAY_S


def configured_certificates(settings: Settings) -> dict[str, Path]:
    """Paths of the configured certificates, by setting."""
    named = {
        "manager.tls_certificate": settings.manager.tls_certificate,
        "proxy.tls_certificate": settings.proxy.tls_certificate,
        "etcd.ca": settings.etcd.ca,
        "etcd.certificate": settings.etcd.certificate,
    }
    return {name: path for name, path in named.items() if path is not None}


def end_of_validity(path: Path) -> float:
    """The expiry of a PEM file's first certificate, in Unix seconds. Raises ``OSError`` and
    ``ValueError``."""
    return min(
        certificate.not_valid_after_utc.timestamp()
        for certificate in x509.load_pem_x509_certificates(path.read_bytes())
    )


def check_files(files: Mapping[str, Path], now: float) -> Iterator[CheckResult]:
    for setting, path in files.items():
        try:
            left_s = end_of_validity(path) - now
        except (OSError, ValueError) as error:
            yield CheckResult(
                "fail", "certificates", f"{setting}: {path}: {error}", f"correct {setting}"
            )
            continue

        status: Status = "fail" if left_s <= 0 else "warn" if left_s < _SOON_S else "ok"
        what = f"{setting} ({path})"
        detail = (
            f"{what} has expired"
            if left_s <= 0
            else f"{what} is valid for {left_s / _DAY_S:.0f} days"
        )
        next_step = (
            ""
            if status == "ok"
            else f"replace that file, and restart the program that uses {setting}"
        )
        yield CheckResult(status, "certificates", detail, next_step)
