"""Metrics of the proxy's SSH server."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class SshMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.logins = Counter(
            "moorage_proxy_ssh_logins",
            "SSH connections by the outcome of their login: accepted, failed, limited or error.",
            ["outcome"],
            registry=registry,
        )
        self.files = Counter(
            "moorage_proxy_sftp_files",
            "Sessions whose files were opened.",
            registry=registry,
        )
        self.connections = Gauge(
            "moorage_proxy_ssh_connections", "SSH connections that are open.", registry=registry
        )
