"""A webhook that is called when sessions fail, and the check of its signature.

``python examples/notifications.py URL KEY``. The manager's setting ``webhook_hosts`` must allow
127.0.0.1, because this receiver is on loopback. A public https address needs no setting.
"""

import asyncio
import base64
import hashlib
import hmac
import sys
from typing import Any

from aiohttp import web

from moorage.common.model.subscriptions import NotificationEvent
from moorage.common.views.subscriptions import SubscriptionSpec
from moorage.sdk import Client
from moorage.sdk.types import SessionSpec


class Receiver:
    """A receiver of webhooks. Refuses the first request, so that it is sent again."""

    def __init__(self) -> None:
        self.secret = ""
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.failed = asyncio.Event()
        self._refused = False

    async def handle(self, request: web.Request) -> web.Response:
        message_id = request.headers["webhook-id"]
        signed = f"{message_id}.{request.headers['webhook-timestamp']}.".encode()
        key = base64.b64decode(self.secret.removeprefix("whsec_"))
        digest = hmac.digest(key, signed + await request.read(), hashlib.sha256)
        expected = "v1," + base64.b64encode(digest).decode()
        if not hmac.compare_digest(expected, request.headers["webhook-signature"]):
            return web.Response(status=401)

        if not self._refused:
            self._refused = True
            return web.Response(status=503)

        # An event may arrive twice, with the same id.
        if message_id not in [known for known, _ in self.seen]:
            self.seen.append((message_id, await request.json()))
            self.failed.set()
        return web.Response()


async def main(url: str, key: str) -> None:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/hook", receiver.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    target = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"

    async with Client(url, key) as client:
        spec = SubscriptionSpec(
            name="failures",
            channel="webhook",
            target=target,
            events=[NotificationEvent.SESSION_FAILED],
        )
        made = await client.subscriptions.create(spec)
        receiver.secret = made.secret or ""
        await client.sessions.create(
            SessionSpec(name="wrong", command=["false"], resources={"cpu": 0.1, "mem": "16MiB"})
        )
        async with asyncio.timeout(120):
            await receiver.failed.wait()

        ((_, event),) = receiver.seen
        print(f"{event['type']}: {event['data']['name']}, exit code {event['data']['exit_code']}")
        await client.subscriptions.delete(made.id)

    await runner.cleanup()


asyncio.run(main(*sys.argv[1:3]))
