"""LangChain, LiteLLM, OpenAI's client and Jupyter's through nginx, with ``deploy/web-servers/nginx.conf`` and
the addresses in ``docs/web-servers.md``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.places import behind_nginx
from tests.clients.results import Results
from tests.clients.test_clients import PROGRAMS, judge, lines
from tests.deploy.web_servers import missing

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "program", ["LangChain and LiteLLM", "openai 3", "httpx, curl and Jupyter"]
)
async def test_client_behind_nginx(program: str, tmp_path: Path) -> None:
    if reason := missing("nginx"):
        pytest.skip(reason)

    async with behind_nginx(tmp_path) as (places, ca):
        trust = dict.fromkeys(("SSL_CERT_FILE", "JUPYTER_GATEWAY_CA_CERTS"), str(ca))
        judge(await lines(PROGRAMS[program], places, **trust), Results(), places)
