"""A whole Moorage for tests of web servers in front of it."""

from __future__ import annotations

import sys
from pathlib import Path

from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from tests.e2e.harness import Platform, until

from .web_servers import APPS, MANAGER, MODELS, PORTAL, WebServer

PROGRAM = [sys.executable, str(Path(__file__).with_name("served_program.py"))]


class Behind:
    """A platform with an endpoint and an app, which web servers forward to."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.platform = Platform(home)
        self.platform.env |= {
            "MOORAGE_MANAGER__ALLOWED_HOSTS": f'["{PORTAL}"]',
            "MOORAGE_PROXY__ALLOWED_HOSTS": f'["{MODELS}"]',
            "MOORAGE_PROXY__APPS_DOMAIN": APPS,
        }
        self.platform.env |= environment
        self.platform.start("up")
        self.session_id = ""
        self.token = ""

    async def furnish(self) -> None:
        await self.platform.wait_until_ready()
        async with self.platform.client() as client:
            engine = EndpointSpec(
                name="tiny",
                engine="custom",
                command=[*PROGRAM, "{port}"],
                probe=Probe(path="/health"),
                resources={"cpu": "0.1", "mem": "64MiB"},
            )
            await client.endpoints.create(engine)
            app = SessionSpec(
                name="app",
                command=[*PROGRAM, "{port:web}"],
                ports=[{"name": "web"}],
                resources={"cpu": 0.1},
            )
            self.session_id = (await client.sessions.create(app)).id

            async def ready() -> bool:
                return (await client.endpoints.get("tiny")).ready == 1

            await until("the endpoint is ready", ready)
            self.token = (await client.access_tokens.create("app", "web")).access_token

    @property
    def app(self) -> str:
        return f"web--{self.session_id}.{APPS}"

    async def answer(self, server: WebServer) -> None:
        """Wait until the web server and everything behind it answer."""

        async def all_answer() -> bool:
            async with server.session() as http:
                for url in (
                    server.url(MODELS, "/health"),
                    server.url(MANAGER, "/readyz"),
                    server.url(PORTAL, "/mgr/readyz"),
                    server.url(self.app, f"/health?access_token={self.token}"),
                ):
                    async with http.get(url) as answer:
                        if answer.status != 200:
                            return False

            return True

        try:
            await until(f"{server.name} and everything behind it answer", all_answer, 30)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{server.log.read_text()}") from None
