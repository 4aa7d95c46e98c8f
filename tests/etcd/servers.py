"""Real etcd servers: one, or three with TLS and a user."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.common.etcd.access import EtcdAccess
from tests.addresses import free_port

USER = "moorage"
PASSWORD = "secret-of-etcd"
PREFIX = "/moorage/"


@dataclass
class Member:
    name: str
    client: int
    peer: int
    home: Path
    process: subprocess.Popen[bytes] | None = None


@dataclass
class EtcdServers:
    """``members`` servers below ``home``. With ``tls`` they have certificates from a private
    authority, and with ``users`` the role of ``USER`` is limited to ``PREFIX``.
    ``client_certificates``: they require one from that authority."""

    home: Path
    count: int = 1
    tls: bool = False
    users: bool = False
    client_certificates: bool = False
    flags: tuple[str, ...] = ()
    members: list[Member] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.members = [
            Member(f"n{number}", free_port(), free_port(), self.home / f"n{number}")
            for number in range(1, self.count + 1)
        ]
        self.scheme = "https" if self.tls else "http"

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        if self.tls:
            write_certificates(self.home)

        for member in self.members:
            self.start_member(member, *self.flags)

        self.wait_until_healthy()
        if self.users:
            for command in (
                ("user", "add", "root:root-secret"),
                ("role", "add", "root"),
                ("user", "grant-role", "root", "root"),
                ("user", "add", f"{USER}:{PASSWORD}"),
                ("role", "add", "moorage"),
                ("role", "grant-permission", "moorage", "--prefix=true", "readwrite", PREFIX),
                ("user", "grant-role", USER, "moorage"),
                ("auth", "enable"),
            ):
                self.etcdctl(*command)

    def start_member(self, member: Member, *flags: str) -> None:
        url = f"{self.scheme}://127.0.0.1"
        cluster = ",".join(f"{one.name}={url}:{one.peer}" for one in self.members)
        certificate = self.home / "node.crt"
        key = self.home / "node.key"
        tls = (
            [
                *("--cert-file", certificate, "--key-file", key),
                *("--peer-cert-file", certificate, "--peer-key-file", key),
                *("--peer-trusted-ca-file", self.home / "ca.crt", "--peer-client-cert-auth"),
                *(["--trusted-ca-file", self.home / "ca.crt"] if self.client_certificates else []),
                *(["--client-cert-auth"] if self.client_certificates else []),
            ]
            if self.tls
            else []
        )
        member.process = subprocess.Popen(
            [
                *("etcd", "--name", member.name, "--data-dir", member.home),
                *("--listen-client-urls", f"{url}:{member.client}"),
                *("--advertise-client-urls", f"{url}:{member.client}"),
                *("--listen-peer-urls", f"{url}:{member.peer}"),
                *("--initial-advertise-peer-urls", f"{url}:{member.peer}"),
                *("--initial-cluster", cluster, "--initial-cluster-token", "tests"),
                *("--logger", "zap", "--log-level", "error"),
                *tls,
                *flags,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self, member: Member) -> None:
        if member.process is not None:
            member.process.kill()
            member.process.wait()
            member.process = None

    def stop(self) -> None:
        for member in self.members:
            self.kill(member)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(f"{self.scheme}://127.0.0.1:{member.client}" for member in self.members)

    @property
    def address(self) -> str:
        """As in settings."""
        scheme = "etcds" if self.tls else "etcd"
        return f"{scheme}://" + ",".join(f"127.0.0.1:{member.client}" for member in self.members)

    @property
    def access(self) -> EtcdAccess:
        return EtcdAccess(
            self.endpoints,
            user=USER if self.users else "",
            password=PASSWORD if self.users else "",
            authority=self.home / "ca.crt" if self.tls else None,
            certificate=self.home / "client.crt" if self.client_certificates else None,
            key=self.home / "client.key" if self.client_certificates else None,
        )

    def etcdctl(self, *command: str, user: str = "") -> str:
        tls = ["--cacert", str(self.home / "ca.crt")] if self.tls else []
        if self.client_certificates:
            tls += ["--cert", str(self.home / "client.crt"), "--key", str(self.home / "client.key")]

        found = subprocess.run(
            [
                "etcdctl",
                "--endpoints",
                ",".join(self.endpoints),
                *tls,
                *(["--user", user] if user else []),
                *command,
            ],
            env=os.environ | {"ETCDCTL_API": "3"},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert found.returncode == 0, f"{command}: {found.stderr}"
        return found.stdout

    @property
    def root(self) -> str:
        return "root:root-secret" if self.users else ""

    def leader(self) -> Member:
        out = self.etcdctl("endpoint", "status", "-w", "fields", user=self.root)
        ids = [line.split(" : ")[1] for line in out.splitlines() if line.startswith('"MemberID"')]
        leaders = [line.split(" : ")[1] for line in out.splitlines() if line.startswith('"Leader"')]
        return next(
            member
            for member, own, leader in zip(self.members, ids, leaders, strict=True)
            if own == leader
        )

    def wait_until_healthy(self) -> None:
        ends_at = time.monotonic() + 30
        while True:
            try:
                self.etcdctl("endpoint", "health", user=self.root)
                return
            except AssertionError:
                if time.monotonic() > ends_at:
                    raise
                time.sleep(0.1)


def is_installed() -> bool:
    return bool(shutil.which("etcd") and shutil.which("etcdctl"))


def write_certificates(home: Path) -> None:
    """An authority, a certificate for 127.0.0.1 for servers and their peers, and two client
    certificates, one of which has the name of ``USER``."""
    now = datetime.now(UTC)
    authority = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "etcd CA of the tests")])
    key_id = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    root = (
        x509.CertificateBuilder(
            subject, subject, authority.public_key(), x509.random_serial_number()
        )
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_id, critical=False)
        .sign(authority, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (home / "ca.crt").write_bytes(root.public_bytes(pem))
    server = ExtendedKeyUsageOID.SERVER_AUTH
    client = ExtendedKeyUsageOID.CLIENT_AUTH
    for file, common_name, usages in (
        ("node", "127.0.0.1", [server, client]),
        ("client", "", [client]),
        ("client-named", USER, [client]),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
        )
        address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id)
        certificate = (
            x509.CertificateBuilder(subject, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(address, critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(issuer, critical=False)
            .sign(authority, hashes.SHA256())
        )
        (home / f"{file}.crt").write_bytes(certificate.public_bytes(pem))
        (home / f"{file}.key").write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
