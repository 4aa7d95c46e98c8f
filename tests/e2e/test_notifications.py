"""Notifications with real managers and a real receiver: what is accepted arrives although the
receiver fails and the manager is killed in between, and always under the same id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from moorage.common.model.spec import SessionSpec
from moorage.common.views.subscriptions import SubscriptionSpec

from .harness import Platform, example, until

SMALL = {"cpu": "0.1", "mem": "16MiB"}
LOOPBACK = '["127.0.0.0/8"]'


@dataclass
class Receiver:
    """``refuses``: the status that it answers. ``asked``, ``taken``: the ids of all requests, and
    of those that it accepted."""

    url: str = ""
    refuses: int = 0
    secret: str = ""
    asked: list[str] = field(default_factory=list)
    taken: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        message_id = request.headers["webhook-id"]
        self.asked.append(message_id)
        try:
            event = Webhook(self.secret).verify(body.decode(), dict(request.headers))
        except WebhookVerificationError as error:
            self.wrong.append(str(error))
            return web.Response(status=401)

        if self.refuses:
            return web.Response(status=self.refuses)
        self.taken.append((message_id, event["data"]["name"]))
        return web.Response()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/", receiver.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        yield receiver
    finally:
        await runner.cleanup()


async def run(platform: Platform, *names: str) -> None:
    async with platform.client() as client:
        for name in names:
            await client.sessions.create(
                SessionSpec(name=name, command=["true"], resources=SMALL, user_labels={"n": name})
            )


@pytest.mark.timeout(300)
async def test_no_event_is_lost_when_the_receiver_and_the_manager_fail(platform: Platform) -> None:
    platform.env["MOORAGE_MANAGER__WEBHOOK_HOSTS"] = LOOPBACK
    platform.start("manager")
    platform.start("agent")
    await platform.wait_until_ready()
    async with receiving() as receiver:
        async with platform.client() as client:
            spec = SubscriptionSpec(
                name="ends", channel="webhook", target=receiver.url, events=["session.ended"]
            )
            receiver.secret = (await client.subscriptions.create(spec)).secret or ""

        receiver.refuses = 500
        await run(platform, "one", "two", "three")

        async def was_refused() -> bool:
            return len(set(receiver.asked)) >= 1

        await until("the receiver refuses", was_refused)
        platform.kill("manager")
        platform.start("manager")
        await platform.wait_until_ready()
        await run(platform, "four")
        platform.kill("manager")
        receiver.refuses = 0
        platform.start("manager")
        await platform.wait_until_ready()

        async def arrived() -> bool:
            return {name for _, name in receiver.taken} == {"one", "two", "three", "four"}

        await until("all events arrive", arrived, timeout_s=180)
        await asyncio.sleep(2)
        assert receiver.wrong == [], "every request is signed"
        by_name = {
            name: {id_ for id_, of in receiver.taken if of == name} for _, name in receiver.taken
        }
        assert {name: len(ids) for name, ids in by_name.items()} == dict.fromkeys(by_name, 1), (
            "an event that is sent again has the same id"
        )


@pytest.mark.timeout(180)
async def test_the_example(platform: Platform) -> None:
    platform.env["MOORAGE_MANAGER__WEBHOOK_HOSTS"] = LOOPBACK
    platform.start("manager")
    platform.start("agent")
    await platform.wait_until_ready()
    shown = await asyncio.to_thread(example, platform, "notifications.py")
    assert shown == "session.failed: wrong, exit code 1\n"
