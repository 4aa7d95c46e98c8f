"""TLS for the REST API and the OpenAI API: configured files, our own CA, renewal, and whether
clients trust it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from manager_harness import TOKEN

from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.config.settings import (
    AgentSettings,
    CommonSettings,
    ManagerSettings,
    ProxySettings,
    Settings,
)
from moorage.common.http.own_certificate import AUTHORITY, CERTIFICATE, KEY
from moorage.common.http.server import ConnectionLimits, GuardedSite, Listener
from moorage.common.http.tls import ServerTls
from moorage.common.link.identity import MANAGER_NAME
from moorage.common.model.errors import ConfigError
from moorage.manager import Manager
from moorage.manager.crypto.authority import CertificateAuthority
from moorage.manager.pki.authorities import Trust
from moorage.manager.pki.web_certificate import WebCertificate
from moorage.sdk import Client, Unreachable
from moorage.server.all_in_one import AllInOne


def authority() -> CertificateAuthority:
    return CertificateAuthority(
        CertificateAuthority.create("secret", SystemClock().now()), "secret"
    )


async def issue(home: Path, ca: CertificateAuthority, *names: str) -> None:
    await WebCertificate(lambda: Trust(ca), SystemClock(), home, names).renew()


@asynccontextmanager
async def listening(tls: ServerTls, limits: ConnectionLimits) -> AsyncIterator[int]:
    async def hello(request: web.BaseRequest) -> web.Response:
        return web.Response(text=request.scheme)

    runner = web.ServerRunner(web.Server(hello))
    await runner.setup()
    try:
        listener = Listener(lambda status, detail: web.Response(status=status), limits, tls.context)
        await GuardedSite(runner, "127.0.0.1", 0, listener).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def served_certificate(port: int, home: Path) -> bytes:
    """The certificate from a verified connection, in DER."""
    context = ssl.create_default_context(cafile=home / AUTHORITY)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(True)
        return certificate
    finally:
        writer.close()


async def test_changed_files_are_used_without_a_restart_and_unusable_ones_are_not(
    tmp_path: Path,
) -> None:
    ca = authority()
    await issue(tmp_path, ca)
    tls = ServerTls(tmp_path / CERTIFICATE, tmp_path / KEY, setting="manager.tls")
    async with listening(tls, ConnectionLimits()) as port:
        first = await served_certificate(port, tmp_path)
        assert await served_certificate(port, tmp_path) == first
        await issue(tmp_path, ca)
        second = await served_certificate(port, tmp_path)
        assert second != first
        (tmp_path / KEY).write_text("no key")
        assert await served_certificate(port, tmp_path) == second
        (tmp_path / CERTIFICATE).unlink()
        assert await served_certificate(port, tmp_path) == second


async def test_server_that_starts_between_the_renewal_of_both_files_waits_for_the_second(
    tmp_path: Path,
) -> None:
    ca = authority()
    await issue(tmp_path, ca)
    (tmp_path / CERTIFICATE).rename(tmp_path / "former")
    await issue(tmp_path, ca)
    (tmp_path / CERTIFICATE).rename(tmp_path / "renewed")
    (tmp_path / "former").rename(tmp_path / CERTIFICATE)
    starting = asyncio.create_task(
        asyncio.to_thread(ServerTls, tmp_path / CERTIFICATE, tmp_path / KEY, setting="proxy.tls")
    )
    await asyncio.sleep(0.1)
    (tmp_path / "renewed").replace(tmp_path / CERTIFICATE)
    await starting


async def test_slow_handshake_is_cut(tmp_path: Path) -> None:
    await issue(tmp_path, authority())
    tls = ServerTls(tmp_path / CERTIFICATE, tmp_path / KEY, setting="manager.tls")
    async with listening(tls, ConnectionLimits(head_s=0.3)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01")
        try:
            async with asyncio.timeout(10):
                assert await reader.read() == b""
        except ConnectionError:
            pass

        writer.close()


def test_unusable_files_name_the_setting(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("no certificate")
    for certificate in ("a", "absent"):
        with pytest.raises(ConfigError, match=r"proxy\.tls_certificate"):
            ServerTls(tmp_path / certificate, tmp_path / "a", setting="proxy.tls")


async def test_own_certificate_is_renewed_halfway_and_has_no_name_of_the_links(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    ca = authority()
    web_certificate = WebCertificate(
        lambda: Trust(ca), clock, tmp_path, ("moorage.example", "0.0.0.0")
    )
    seen = []
    for days in (0, 14, 2):
        clock.advance(days * 86_400)
        await web_certificate.renew()
        seen.append((tmp_path / CERTIFICATE).read_text())

    assert seen[0] == seen[1] != seen[2]
    assert (tmp_path / KEY).stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError):
        ca.issue_server_certificate([MANAGER_NAME.upper()], clock.now(), timedelta(days=1))


async def test_everything_speaks_tls_with_the_own_authority(
    migrated_database: str, tmp_path: Path
) -> None:
    settings = Settings(
        common=CommonSettings(tls="ca", link_tls="on"),
        manager=ManagerSettings(
            dsn=migrated_database, listen="127.0.0.1:0", link_listen="127.0.0.1:0"
        ),
        agent=AgentSettings(id="node", inventory="fake:1xH100", docker="off"),
        proxy=ProxySettings(listen="127.0.0.1:0", internal_listen="127.0.0.1:0", id="edge"),
    )
    ca_file = str(tmp_path / AUTHORITY)
    async with AllInOne(settings, clock=SystemClock(), link_token=TOKEN, home=tmp_path) as running:
        assert running.url.startswith("https://")
        assert running.openai_url.startswith("https://")
        async with Client(running.url, running.first_key or "", ca_file=ca_file) as client:
            assert (await client.health()).status == "ok"
            assert [agent.id for agent in await client.agents.list()] == ["node"]

        context = ssl.create_default_context(cafile=ca_file)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        models = f"{running.openai_url}/models"
        bearer = {"Authorization": f"Bearer {running.first_key}"}
        async with aiohttp.ClientSession() as http, asyncio.timeout(10):
            while True:
                async with http.get(models, headers=bearer, ssl=context) as answer:
                    if answer.status != 503:  # until the routes have arrived
                        break

                await asyncio.sleep(0.02)

            assert answer.status == 200

        async with Client(running.url) as client:
            with pytest.raises(Unreachable, match="--ca-file"):
                await client.health()

        with pytest.raises(aiohttp.ClientError):
            async with aiohttp.ClientSession() as http:
                await http.get(models.replace("https:", "http:"))


async def test_manager_speaks_tls_with_configured_files(
    migrated_database: str, tmp_path: Path
) -> None:
    home = tmp_path / "certificates"
    await issue(home, authority())
    settings = ManagerSettings(
        dsn=migrated_database, listen="127.0.0.1:0", link_listen="127.0.0.1:0",
        tls_certificate=home / CERTIFICATE, tls_key=home / KEY,
    )  # fmt: skip
    async with Manager(settings, clock=SystemClock(), link_token=TOKEN, home=tmp_path) as manager:
        url = f"{manager.api_scheme}://{manager.api_address}"
        async with Client(url, manager.first_key or "", ca_file=str(home / AUTHORITY)) as client:
            assert (await client.health()).status == "ok"
