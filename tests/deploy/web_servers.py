"""Real web servers in front of Moorage, with the configurations in ``deploy/web-servers``. Only
addresses and paths of files are replaced."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.addresses import free_port

CONFIGURATIONS = Path(__file__).parents[2] / "deploy" / "web-servers"
MODELS = "models.example.com"
APPS = "apps.example.com"
PORTAL = "portal.example.com"
# In place of moorage.example.com, because the command line cannot be given another resolver.
MANAGER = "localhost"
# Another name for models, because the clients that others wrote cannot be given one either.
LOOPBACK = "127.0.0.1"
_NAMES = (MODELS, f"*.{APPS}", PORTAL, MANAGER)


@dataclass
class Place:
    """What a configuration needs: the addresses of the manager and the proxy, and a folder."""

    folder: Path
    manager: str
    proxy: str
    port: int = field(default_factory=free_port)

    @property
    def certificate(self) -> Path:
        return self.folder / "moorage.pem"

    def text(self, file: str, **changes: str) -> str:
        """A configuration with this place's addresses and the ``changes``, each of which must occur
        in it."""
        text = (CONFIGURATIONS / file).read_text()
        for old, new in changes.items():
            assert old in text, f"{file} has no {old!r}"
            text = text.replace(old, new)

        return text

    def write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text)
        return file


def write_certificate(folder: Path) -> None:
    """A certificate for all names, its key, and both in one file."""
    names = ",".join((*(f"DNS:{name}" for name in _NAMES), f"IP:{LOOPBACK}"))
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += [
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=Moorage",
        "-addext",
        f"subjectAltName={names}",
    ]
    command += ["-keyout", "moorage.key", "-out", "moorage.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    both = (folder / "moorage.pem").read_text() + (folder / "moorage.key").read_text()
    (folder / "both.pem").write_text(both)


def nginx(place: Place) -> list[str]:
    headers = place.write("moorage-headers.conf", place.text("moorage-headers.conf"))
    servers = place.text(
        "nginx.conf",
        **{
            "listen 443 ssl": f"listen 127.0.0.1:{place.port} ssl",
            f"server_name {MODELS}": f"server_name {MODELS} {LOOPBACK}",
            "moorage.example.com": MANAGER,
            "/etc/ssl/moorage.pem": str(place.certificate),
            "/etc/ssl/moorage.key": str(place.folder / "moorage.key"),
            "/var/log/nginx/moorage.log": str(place.folder / "nginx-access.log"),
            "include moorage-headers.conf": f"include {headers}",
            "127.0.0.1:8800": place.proxy,
            "127.0.0.1:8700": place.manager,
        },
    )
    # What Debian's nginx.conf has around the files in conf.d, and folders that need no root.
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "\n".join(f"{kind}_temp_path {place.folder / kind};" for kind in kinds)
    # Otherwise root's workers run as a user who cannot reach the folders.
    user = "user root;\n" if os.geteuid() == 0 else ""
    around = (
        f"{user}pid {place.folder / 'nginx.pid'};\nerror_log {place.folder / 'nginx.log'};\n"
        f"daemon off;\nevents {{}}\nhttp {{\naccess_log off;\n{folders}\n{servers}\n}}\n"
    )
    return ["/usr/sbin/nginx", "-c", str(place.write("whole-nginx.conf", around))]


def haproxy(place: Place) -> list[str]:
    text = place.text(
        "haproxy.cfg",
        **{
            "bind :443": f"bind 127.0.0.1:{place.port}",
            "moorage.example.com": MANAGER,
            "/etc/haproxy/moorage.pem": str(place.folder / "both.pem"),
            "127.0.0.1:8800": place.proxy,
            "127.0.0.1:8700": place.manager,
            "    maxconn 20000": f"    maxconn 200\n    stats socket {place.folder / 'stats'}",
            "inter 2s": "inter 200ms",
        },
    )
    return ["/usr/sbin/haproxy", "-db", "-f", str(place.write("haproxy.cfg", text))]


def caddy(place: Place) -> list[str]:
    text = place.text(
        "Caddyfile",
        **{
            "moorage.example.com": MANAGER,
            "/etc/caddy/moorage.pem": str(place.certificate),
            "/etc/caddy/moorage.key": str(place.folder / "moorage.key"),
            "127.0.0.1:8800": place.proxy,
            "127.0.0.1:8700": place.manager,
        },
    )
    # Its own authority in place of one on the Internet.
    ours = (
        "admin off\nauto_https disable_redirects\nlocal_certs\nskip_install_trust\n"
        f"default_bind 127.0.0.1\nhttps_port {place.port}\nstorage file_system {place.folder}\n"
    )
    file = place.write("Caddyfile", f"{{\n{ours}}}\n{text}")
    return ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"]


SERVERS: dict[str, Callable[[Place], list[str]]] = {
    "nginx": nginx,
    "haproxy": haproxy,
    "caddy": caddy,
}
PROGRAMS = {"nginx": "/usr/sbin/nginx", "haproxy": "/usr/sbin/haproxy", "caddy": "caddy"}


class _Everywhere(AbstractResolver):
    """Every name is this machine."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host="127.0.0.1",
                port=port,
                family=socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
        ]

    async def close(self) -> None:
        pass


class WebServer:
    """A running web server. ``ca``: a file with the authority of its certificates."""

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.place = place
        self.log = place.folder / "output"
        write_certificate(place.folder)
        self._process = subprocess.Popen(
            SERVERS[name](place),
            cwd=place.folder,
            env=os.environ | {"HOME": str(place.folder)},
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
        )

    @property
    def ca(self) -> Path:
        """Caddy's authority as well, once Caddy has made it."""
        own = self.place.folder / "pki" / "authorities" / "local" / "root.crt"
        parts = [self.place.certificate, *([own] if own.exists() else [])]
        return self.place.write("ca.pem", "".join(part.read_text() for part in parts))

    def url(self, host: str, path: str = "") -> str:
        return f"https://{host}:{self.place.port}{path}"

    def listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex((LOOPBACK, self.place.port)) == 0

    def session(self, **options: Any) -> aiohttp.ClientSession:
        trust = ssl.create_default_context(cafile=self.ca)
        connector = aiohttp.TCPConnector(ssl=trust, resolver=_Everywhere())
        return aiohttp.ClientSession(connector=connector, **options)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def missing(name: str) -> str:
    """The reason why this server cannot run here, or ""."""
    absent = [one for one in (PROGRAMS[name], "openssl") if not shutil.which(one)]
    return f"not installed: {', '.join(absent)} (make test-deploy installs it)" if absent else ""
