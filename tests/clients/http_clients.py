"""HTTP clients and Jupyter's client for remote kernels:
``python -m tests.clients.http_clients PLACES``."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import httpx
from jupyter_server.gateway.gateway_client import GatewayClient, gateway_request

from tests.clients.checks import Checks, Place, run

plain = Checks("httpx")
jupyter = Checks("jupyter-server")
STATUS = "\\n%{http_code} %{http_version}"


def body(place: Place) -> dict[str, Any]:
    return {"model": place.model, "messages": [{"role": "user", "content": "hello"}]}


def bearer(place: Place) -> dict[str, str]:
    return {"Authorization": f"Bearer {place.key}"}


def curl(place: Place, *options: str) -> str:
    """The answer of a chat to curl, with its status."""
    command = ["curl", "-sS", "--max-time", "20", "--noproxy", "*", "-w", STATUS, *options]
    command += ["-H", f"Authorization: Bearer {place.key}", "-H", "Content-Type: application/json"]
    command += ["-d", json.dumps(body(place)), f"{place.v1}/chat/completions"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@plain
def keep_alive(place: Place) -> Any:
    with httpx.Client(headers=bearer(place)) as one:
        url = f"{place.v1}/chat/completions"
        answers = [one.post(url, json=body(place)) for _ in range(3)]
        return [[answer.status_code, answer.json()] for answer in answers]


@plain
def chunked_request(place: Place) -> Any:
    pieces = iter([json.dumps(body(place))[:9].encode(), json.dumps(body(place))[9:].encode()])
    headers = bearer(place) | {"Content-Type": "application/json"}
    answer = httpx.post(f"{place.v1}/chat/completions", content=pieces, headers=headers)
    return [answer.status_code, answer.json()]


@plain
def curl_http_1_0(place: Place) -> Any:
    return curl(place, "--http1.0").splitlines()[-1].partition(" ")[0]


@plain
def curl_http_1_1(place: Place) -> Any:
    return curl(place, "--http1.1")


@plain
def curl_expect_100(place: Place) -> Any:
    return curl(place, "-H", "Expect: 100-continue")


@plain
def curl_chunked(place: Place) -> Any:
    return curl(place, "-H", "Transfer-Encoding: chunked")


@plain
def curl_compressed(place: Place) -> Any:
    return curl(place, "--compressed")


async def _kernel_specs(place: Place, scheme: str) -> Any:
    GatewayClient.clear_instance()
    gateway = GatewayClient.instance()
    gateway.url = place.app
    gateway.auth_token = place.token
    gateway.auth_scheme = scheme
    gateway.init_connection_args()
    answer = await gateway_request(f"{place.app}/api/kernelspecs", method="GET")
    return [answer.code, json.loads(answer.body)]


@jupyter
def kernel_specs(place: Place) -> Any:
    # The client's default scheme, and the one of RFC 6750.
    return [asyncio.run(_kernel_specs(place, scheme)) for scheme in ("token", "Bearer")]


if __name__ == "__main__":
    run(plain, jupyter)
