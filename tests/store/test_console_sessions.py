"""Console sessions over the real store and API: sign-in, cookies, CSRF, lock-out, expiry and ending
them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from moorage.common.views.identity import UserPatch
from moorage.manager.api.http.dependencies import ConsoleServices
from moorage.manager.identity.attempts import AttemptLimit
from moorage.manager.identity.keys import digest_of
from moorage.manager.store import Store
from moorage.manager.store.identity.console_sessions import FREE_ATTEMPTS
from moorage.proxy.apps.headers import without_access_token
from tests.clocks import StoreClock

from .tenancy_harness import ROOT, Api, cheap_passwords, serve

PASSWORD = "correct horse battery"


@pytest.fixture
async def api(store: Store, clock: StoreClock) -> AsyncIterator[Api]:
    console = ConsoleServices(passwords=cheap_passwords(), attempts=AttemptLimit(refill_s=3600))
    async with serve(store, console, clock) as served:
        status, text = await served.call(
            "admin", "PUT", "/v1/users/ann/password", {"password": PASSWORD}
        )
        assert (status, PASSWORD in text) == (200, False)
        yield served


class Browser:
    """A console tab, which keeps the cookie and the token."""

    def __init__(self, api: Api) -> None:
        self._http = api.http
        self.cookie = ""
        self.token = ""
        self.set_cookie = ""
        self.origin = api.url

    async def call(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, aiohttp.ClientResponse]:
        given = {"Origin": self.origin, "X-CSRF-Token": self.token} | headers
        given |= {"Cookie": self.cookie} if self.cookie else {}
        async with self._http.request(
            method, path, json=body, headers={k: v for k, v in given.items() if v}
        ) as answer:
            return answer.status, json.loads(await answer.text()), answer

    async def sign_in(self, **body: str) -> tuple[int, Any]:
        status, who, answer = await self.call("POST", "/v1/session", body)
        if status == 201:
            self.set_cookie = answer.headers["Set-Cookie"]
            self.cookie = self.set_cookie.partition(";")[0]
            self.token = who["csrf_token"]
        return status, who


async def test_a_user_signs_in_acts_and_signs_out(api: Api) -> None:
    tab = Browser(api)
    status, who = await tab.sign_in(user="ann", password=PASSWORD)
    assert status == 201, who
    assert (who["user"], who["project"], who["role"], who["kind"]) == (
        "ann",
        "vision",
        "member",
        "console",
    )
    assert "HttpOnly" in tab.set_cookie
    assert "SameSite=Strict" in tab.set_cookie
    assert "Secure" not in tab.set_cookie
    status, again, _ = await tab.call("GET", "/v1/session")
    assert (status, again["csrf_token"]) == (200, tab.token)
    status, made, _ = await tab.call("POST", "/v1/sessions", {"command": ["x"], "name": "job"})
    assert (status, made["user"], made["project"]) == (201, "ann", "vision")
    _, history, _ = await tab.call("GET", f"/v1/sessions/{made['id']}/history")
    assert history["items"][0]["actor"] == "user:ann"
    assert (await tab.call("GET", "/v1/users"))[0] == 403
    status, gone, answer = await tab.call("DELETE", "/v1/session")
    assert (status, gone["ended"]) == (200, 1)
    assert "Max-Age=0" in answer.headers["Set-Cookie"]
    assert (await tab.call("GET", "/v1/session"))[0] == 401


async def test_writes_come_from_the_console_only(api: Api) -> None:
    tab = Browser(api)
    await tab.sign_in(user="ann", password=PASSWORD)
    body = {"command": ["x"]}
    for headers in ({"X-CSRF-Token": ""}, {"Origin": "http://127.0.0.1:1"}, {"Origin": ""}):
        status, problem, _ = await tab.call("POST", "/v1/sessions", body, **headers)
        assert (status, problem["code"]) == (403, "csrf"), headers

    status, problem, _ = await tab.call(
        "GET", "/v1/sessions/x/exec", Upgrade="websocket", Origin="http://app"
    )
    assert (status, problem["code"]) == (403, "csrf")
    status, problem, _ = await tab.call(
        "POST", "/v1/session", {"user": "ann", "password": PASSWORD}, Origin="http://app:8800"
    )
    assert (status, problem["code"]) == (403, "csrf")
    assert (await tab.call("POST", "/v1/sessions", body))[0] == 201


async def test_wrong_passwords_lock_a_name_whether_or_not_it_exists(api: Api) -> None:
    for user in ("ann", "nobody-of-this-name"):
        tab = Browser(api)
        guesses = [tab.sign_in(user=user, password=f"guess {n}") for n in range(FREE_ATTEMPTS + 4)]
        statuses = [status for status, _ in await asyncio.gather(*guesses)]
        assert statuses.count(401) == FREE_ATTEMPTS
        assert statuses.count(429) == 4
        status, _, answer = await tab.call(
            "POST", "/v1/session", {"user": user, "password": PASSWORD}
        )
        assert status in (429, 201 if user == "ann" else 401)
        if status == 429:
            assert int(answer.headers["Retry-After"]) >= 1

    await api.store.database.fetch(
        "UPDATE sign_in_attempts SET locked_until = now() - interval '1 s'"
    )
    assert (await Browser(api).sign_in(user="ann", password=PASSWORD))[0] == 201
    assert (await Browser(api).sign_in(user="ann", password="wrong again"))[0] == 401, (
        "success forgives"
    )


async def test_a_guess_costs_the_guesser_64_mib(store: Store, clock: StoreClock) -> None:
    """With the hashes that managers use, which no other test uses."""
    async with serve(store, ConsoleServices(), clock) as api:
        assert (await api.call("admin", "PUT", "/v1/users/ann/password", {"password": PASSWORD}))[
            0
        ] == 200
        [row] = await store.database.fetch("SELECT hash FROM user_passwords")
        assert row["hash"].startswith("$argon2id$v=19$m=65536,t=3,p=4$")
        assert (await Browser(api).sign_in(user="ann", password=PASSWORD))[0] == 201
        assert (await Browser(api).sign_in(user="ann", password="guess"))[0] == 401


async def test_sessions_expire_and_end_with_what_opened_them(api: Api) -> None:
    store = api.store

    async def signed_in(**body: str) -> Browser:
        tab = Browser(api)
        assert (await tab.sign_in(**body))[0] == 201
        return tab

    async def is_in(tab: Browser) -> bool:
        # Without the API's cache.
        secret = tab.cookie.partition("=")[2]
        return await store.console_sessions.find(digest_of(secret)) is not None

    for end in (
        "UPDATE console_sessions SET expires_at = created_at + interval '1 microsecond'",
        "UPDATE console_sessions SET last_seen_at = now() - interval '2 h'",
    ):
        tab = await signed_in(user="ann", password=PASSWORD)
        await store.database.fetch(end)
        assert not await is_in(tab), end

    one, other = [await signed_in(user="ann", password=PASSWORD) for _ in range(2)]
    assert (await one.call("DELETE", "/v1/session?everywhere=true"))[1]["ended"] == 2
    assert not await is_in(other)
    one, other = [await signed_in(user="ann", password=PASSWORD) for _ in range(2)]
    change = {"current": PASSWORD, "password": "another good one"}
    assert (await one.call("PUT", "/v1/session/password", change | {"current": "wrong"}))[0] == 422
    status, changed, _ = await one.call("PUT", "/v1/session/password", change)
    assert (status, changed["ended"]) == (200, 1)
    assert (await is_in(one), await is_in(other)) == (True, False)
    by_key = await signed_in(key=api.keys["ann"])
    await store.keys.revoke(ROOT, "ann")
    assert (await is_in(one), await is_in(by_key)) == (True, False)
    assert (await Browser(api).sign_in(key=api.keys["ann"]))[0] == 401
    await store.users.update(ROOT, "ann", UserPatch(status="disabled"))
    assert not await is_in(one)
    assert (await Browser(api).sign_in(user="ann", password="another good one"))[0] == 401


async def test_an_address_that_tries_many_names_is_slowed_down(api: Api) -> None:
    guesses = [Browser(api).sign_in(user=f"user-{n}", password="guess") for n in range(40)]
    statuses = [status for status, _ in await asyncio.gather(*guesses)]
    assert set(statuses) == {401, 429}
    assert statuses.count(401) == 30
    for body in ({"user": "ann", "password": PASSWORD}, {"key": "mg-guess"}):
        status, problem, answer = await Browser(api).call("POST", "/v1/session", body)
        assert (status, "this address" in problem["detail"]) == (429, True), problem
        assert int(answer.headers["Retry-After"]) >= 1


async def test_what_a_page_asks_by_itself_keeps_no_session_alive(
    api: Api, clock: StoreClock
) -> None:
    tab = Browser(api)
    await tab.sign_in(user="ann", password=PASSWORD)

    async def idle_s(age_s: int) -> float:
        """The time since the last action, as stored in the database after it has been set to
        ``age_s``."""
        [row] = await api.store.database.fetch(
            "SELECT extract(epoch FROM now() - last_seen_at)::float8 AS idle FROM console_sessions"
        )
        if age_s:
            await api.store.database.fetch(
                f"UPDATE console_sessions SET last_seen_at = now() - interval '{age_s} s'"
            )
        return float(row["idle"])

    await idle_s(3000)
    background = {"X-Moorage-Background": "1"}
    assert (await tab.call("GET", "/v1/session", **background))[0] == 200
    assert await idle_s(0) > 2900

    # An action within the time for which the API caches its lookups is still counted.
    assert (await tab.call("GET", "/v1/session"))[0] == 200
    assert await idle_s(3595) < 600

    # longer than the API caches lookups, so that the stream is not mistaken for that action
    clock.advance(6)
    headers = {"Cookie": tab.cookie} | background
    async with api.http.get("/v1/events", headers=headers) as stream:
        assert stream.status == 200
        await stream.content.readuntil(b"\n\n")

        # Longer than its user was still allowed to be idle.
        await api.store.database.fetch(
            "UPDATE console_sessions SET last_seen_at = last_seen_at - interval '6 s'"
        )
        clock.advance(6)

        # so that the stream checks at once who is listening
        await api.store.keys.revoke(ROOT, "boss")
        with pytest.raises(aiohttp.ClientPayloadError):
            await stream.content.read()  # until it is cut off

    assert (await tab.call("GET", "/v1/session"))[0] == 401, "it expired while the stream was open"


async def test_a_session_acts_in_one_project_at_a_time(api: Api) -> None:
    tab = Browser(api)
    await tab.sign_in(user="ann", password=PASSWORD)
    status, _, _ = await tab.call("PUT", "/v1/session", {"project": "speech"})
    assert status == 404
    await api.store.projects.set_member(ROOT, "speech", "ann", "viewer")
    status, who, _ = await tab.call("PUT", "/v1/session", {"project": "speech"})
    assert (status, who["project"], who["role"]) == (200, "speech", "viewer")
    assert (await tab.call("POST", "/v1/sessions", {"command": ["x"]}))[0] == 403
    by_key = Browser(api)
    await by_key.sign_in(key=api.keys["lead"])
    assert (await by_key.call("PUT", "/v1/session", {"project": "vision"}))[0] == 409


async def test_over_tls_the_cookie_is_for_this_host_only(api: Api) -> None:
    """Behind a web server with TLS, the origin shows that TLS is used."""
    tab = Browser(api)
    host = tab.origin.removeprefix("http://")
    _, _, answer = await tab.call(
        "POST", "/v1/session", {"user": "ann", "password": PASSWORD}, Origin=f"https://{host}"
    )
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("__Host-moorage-console=mg-")
    for attribute in ("; Secure", "; Path=/;", "; HttpOnly", "; SameSite=Strict"):
        assert attribute in cookie

    assert "Domain" not in cookie


async def test_no_app_sees_the_cookie(api: Api) -> None:
    tab = Browser(api)
    await tab.sign_in(user="ann", password=PASSWORD)
    assert without_access_token(f"theme=dark; {tab.cookie}; a=b") == "theme=dark; a=b"


async def test_sign_ins_are_audited_with_their_user_and_failures_with_the_name_that_was_tried(
    api: Api,
) -> None:
    tab = Browser(api)
    assert (await tab.sign_in(user="ann", password="a wrong one"))[0] == 401
    assert (await tab.sign_in(key="mg-no-such-key"))[0] == 401
    assert (await tab.sign_in(user="ann", password=PASSWORD))[0] == 201
    _, text = await api.call("admin", "GET", "/v1/audit?action=sign_in&sort=at")
    entries = json.loads(text)["items"]
    assert [
        (entry["actor"], entry["user"], entry["name"], entry["status"]) for entry in entries
    ] == [
        ("anonymous", "anonymous", "ann", 401),
        ("anonymous", "anonymous", "", 401),
        ("user:ann", "ann", "", 201),
    ]
    assert "wrong one" not in text
    assert "no-such-key" not in text
