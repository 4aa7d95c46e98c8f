"""Checks of the certificates that the settings name."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.common.config.settings import Settings
from moorage.server.doctor.certificates import check_files, configured_certificates

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


def written(path: Path, *days: float) -> Path:
    """Certificates that are valid for this many days from ``NOW``."""
    path.write_bytes(b"".join(_certificate(NOW + dt.timedelta(days=one)) for one in days))
    return path


def _certificate(until: dt.datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = builder.not_valid_before(until - dt.timedelta(days=90)).not_valid_after(until)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    ("days", "status", "detail"),
    [
        ((60,), "ok", "is valid for 60 days"),
        ((13,), "warn", "is valid for 13 days"),
        ((-1,), "fail", "has expired"),
        ((60, -1), "fail", "has expired"),  # one of a chain
        ((), "fail", "Unable to load PEM"),
    ],
)
def test_what_is_found(tmp_path: Path, days: tuple[float, ...], status: str, detail: str) -> None:
    path = written(tmp_path / "proxy.pem", *days)
    (found,) = check_files({"proxy.tls_certificate": path}, NOW.timestamp())
    assert (found.status, found.name) == (status, "certificates")
    assert found.detail.startswith("proxy.tls_certificate")
    assert detail in found.detail
    assert str(path) in found.detail
    assert bool(found.next_step) == (status != "ok")


def test_a_missing_file_is_found(tmp_path: Path) -> None:
    (found,) = check_files({"etcd.ca": tmp_path / "nothing"}, NOW.timestamp())
    assert (found.status, found.next_step) == ("fail", "correct etcd.ca")


def test_all_certificates_of_the_settings_are_checked() -> None:
    paths = {
        "manager": {"tls_certificate": "a", "tls_key": "k"},
        "etcd": {"certificate": "b", "ca": "c"},
    }
    found = configured_certificates(Settings.model_validate(paths))
    assert found == {
        "manager.tls_certificate": Path("a"),
        "etcd.ca": Path("c"),
        "etcd.certificate": Path("b"),
    }
