"""Users from an OpenID provider over the real store and API: users, roles by rule, links,
refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from typing import Any

import pytest

from moorage.common.config.settings import ManagerSettings
from moorage.common.model.oidc_rules import Grants
from moorage.common.views.identity import UserPatch
from moorage.manager.api.http.dependencies import ConsoleServices
from moorage.manager.identity.keys import digest_of
from moorage.manager.oidc import Person, SignInAttempt, SignInRefused
from moorage.manager.oidc.provider import OidcClient
from tests.clocks import StoreClock

from .conftest import open_store
from .tenancy_harness import ROOT, Api, cheap_passwords, serve

ISSUER = "http://127.0.0.1:9"  # nobody listens there
NO_GRANTS = Grants()
MEMBER = Grants(None, {"vision": "member"})
LEAD = Grants(None, {"vision": "admin"})


@pytest.fixture
async def api(migrated_database: str) -> AsyncIterator[Api]:
    clock = StoreClock()
    settings = ManagerSettings(oidc_issuer=ISSUER, oidc_client_id="moorage", oidc_label="Our <lab>")
    console = ConsoleServices(passwords=cheap_passwords(), oidc=OidcClient(settings, clock))
    async with open_store(migrated_database, clock) as store, serve(store, console) as served:
        yield served


def person(
    given: Grants = NO_GRANTS, subject: str = "s-1", name: str = "dora", email: str = ""
) -> Person:
    return Person(ISSUER, subject, names=(name, email.partition("@")[0]), email=email, grants=given)


async def roles(api: Api, user: str) -> dict[str, str]:
    return dict((await api.store.users.get(ROOT, user)).projects)


async def opened(api: Api, user: str) -> str:
    limits: dict[str, Any] = {"from_address": "", "lifetime_s": 60, "idle_s": 60}
    return digest_of(await api.store.console_sessions.open(user, None, by_oidc=True, **limits))


async def test_nobody_gets_in_without_a_rule_or_a_link(api: Api) -> None:
    users = len((await api.store.users.page(ROOT)).items)
    with pytest.raises(SignInRefused, match="no rule matches you") as refused:
        await api.store.oidc.identify(person())
    assert "moorage users set NAME --subject s-1" in (refused.value.next_step or "")
    assert len((await api.store.users.page(ROOT)).items) == users


async def test_a_rule_makes_a_user_once_and_never_takes_one_over(api: Api) -> None:
    assert await api.store.oidc.identify(person(MEMBER, email="d@example.com")) == "dora"
    assert await api.store.oidc.identify(person(MEMBER, name="renamed")) == "dora"
    made = await api.store.users.get(ROOT, "dora")
    assert (made.email, made.subject, made.created_by) == ("d@example.com", "s-1", "oidc")

    for subject, name, user in (
        ("s-2", "dora", "dora-2"),
        ("s-3", "ann", "ann-2"),
        ("s-4", "root", "user-2"),
        ("s-5", "Börje O'Neil", "b-rje-o-neil"),
        ("s-6", "../..", "user-3"),
    ):
        assert await api.store.oidc.identify(person(MEMBER, subject, name)) == user

    assert await roles(api, "ann") == {"vision": "member"}


async def test_rules_withdraw_what_they_gave_and_leave_what_was_set_by_hand(api: Api) -> None:
    identify = api.store.oidc.identify
    users = api.store.users
    projects = api.store.projects
    user = await identify(person(MEMBER))
    assert await roles(api, user) == {"vision": "member"}
    await identify(person(LEAD))
    assert await roles(api, user) == {"vision": "admin"}
    await projects.set_member(ROOT, "speech", user, "viewer")
    await identify(person(Grants(None, {"speech": "admin", "missing": "member"})))
    assert await roles(api, user) == {"speech": "viewer"}, (
        "a rule does not replace what was set by hand"
    )
    await identify(person())
    assert await roles(api, user) == {"speech": "viewer"}
    await identify(person(MEMBER))
    await projects.remove_member(ROOT, "vision", user)
    for _ in range(2):
        await identify(person(MEMBER))
        assert await roles(api, user) == {"speech": "viewer"}, "it was removed by hand"

    await identify(person(Grants("admin")))
    assert (await users.get(ROOT, user)).platform_role == "admin"
    await identify(person(Grants("auditor")))
    assert (await users.get(ROOT, user)).platform_role == "auditor"
    await users.update(ROOT, user, UserPatch(platform_role=None))
    for _ in range(2):
        await identify(person(Grants("auditor")))
        assert (await users.get(ROOT, user)).platform_role is None, "it was taken by hand"

    await identify(person())
    await identify(person(Grants("auditor")))
    assert (await users.get(ROOT, user)).platform_role == "auditor"
    await identify(person())
    assert (await users.get(ROOT, user)).platform_role is None


async def test_who_lost_all_roles_does_not_get_in_and_open_sessions_lose_theirs(api: Api) -> None:
    user = await api.store.oidc.identify(person(MEMBER))
    session = await opened(api, user)
    assert await api.store.console_sessions.find(session) is not None
    await api.store.oidc.identify(person())
    assert await api.store.console_sessions.find(session) is None
    with pytest.raises(Exception, match="member of no project"):
        await opened(api, user)

    await api.store.oidc.identify(person(MEMBER))
    await api.store.users.update(ROOT, user, UserPatch(status="disabled"))
    with pytest.raises(Exception, match="disabled"):
        await opened(api, user)


async def test_an_administrator_links_and_unlinks_a_user(api: Api) -> None:
    path = "/v1/users/ann/subject"
    status, text = await api.call("admin", "PUT", path, {"subject": "s-7"})
    assert (status, '"subject":"s-7"' in text) == (200, True)
    assert await api.store.oidc.identify(person(subject="s-7")) == "ann"
    assert await api.store.oidc.identify(person(Grants("auditor"), "s-7")) == "ann"
    status, text = await api.call("admin", "PUT", "/v1/users/bob/subject", {"subject": "s-7"})
    assert (status, "already linked to user 'ann'" in text) == (409, True)
    assert (
        await api.call("admin", "PUT", "/v1/users/ann/password", {"password": "correct horse"})
    )[0] == 200
    by_oidc = await opened(api, "ann")
    assert (await api.call("admin", "DELETE", "/v1/users/ann/password"))[0] == 200
    assert await api.store.console_sessions.find(by_oidc) is not None, "no password opened it"
    with_key = await api.store.keys.find(digest_of(api.keys["ann"]))
    assert (await api.call("admin", "PUT", path, {"subject": "s-7"}))[0] == 200
    assert await api.store.console_sessions.find(by_oidc) is not None, "nothing has changed"
    assert (await api.call("admin", "DELETE", path))[0] == 200
    assert await api.store.console_sessions.find(by_oidc) is None
    assert with_key is not None
    assert await api.store.keys.find(digest_of(api.keys["ann"])) is not None
    assert (await api.store.users.get(ROOT, "ann")).platform_role is None
    assert await roles(api, "ann") == {"vision": "member"}
    assert (await api.call("admin", "DELETE", path))[0] == 404
    assert (await api.call("admin", "PUT", "/v1/users/nobody/subject", {"subject": "s-8"}))[
        0
    ] == 404


async def test_answers_that_this_browser_did_not_ask_for_are_refused(api: Api) -> None:
    attempt = SignInAttempt.of("mg-mine")
    callback = "/v1/session/oidc/callback"
    mine = {"Cookie": "moorage-oidc=mg-mine"}

    async def answer(query: str, headers: dict[str, str]) -> tuple[int, str]:
        async with api.http.get(
            f"{callback}?{query}", headers=headers, allow_redirects=False
        ) as response:
            assert "moorage-console" not in response.headers.get("Set-Cookie", "")
            return response.status, await response.text()

    for query, headers in (
        (f"code=c&state={attempt.state}", {}),
        ("code=c&state=other", mine),
        ("code=c", mine),
        (f"code=c&state={attempt.state}", {"Cookie": "moorage-oidc=mg-another"}),
        (f"code=c&state={SignInAttempt.of('').state}", {}),
    ):
        status, text = await answer(query, headers)
        if query.endswith(SignInAttempt.of("").state):
            assert status == 403, "no cookie is no secret"

        assert (status, "did not begin in this browser" in text) == (403, True), query

    denied = (
        f"state={attempt.state}&error=access_denied&error_description=%3Cscript%3E&session_state=x"
    )
    status, text = await answer(denied, mine | {"Accept": "text/html"})
    assert (status, "access_denied: &lt;script&gt;" in text, "<script" in text) == (
        403,
        True,
        False,
    )
    assert '<a href="../../../console/">' in text, "below the path of a web server in front, too"
    status, text = await answer(f"code=c&state={attempt.state}", mine | {"Accept": "text/html"})
    assert (status, "does not answer" in text, "manager.oidc_issuer" in text) == (502, True, True)


async def test_a_manager_whose_provider_is_away_says_so(api: Api) -> None:
    async with api.http.get("/v1/session/ways") as ways:
        assert await ways.json() == {"oidc": "Our <lab>"}
    async with api.http.get("/v1/session/oidc", allow_redirects=False) as begun:
        assert (begun.status, (await begun.json())["code"]) == (502, "provider-failed")
        assert SimpleCookie(begun.headers.get("Set-Cookie", "")) == {}


async def test_without_a_provider_there_is_no_single_sign_on(migrated_database: str) -> None:
    async with open_store(migrated_database) as store, serve(store) as api:
        async with api.http.get("/v1/session/ways") as ways:
            assert await ways.json() == {"oidc": ""}
        for path in ("/v1/session/oidc", "/v1/session/oidc/callback?code=c&state=s"):
            async with api.http.get(path) as response:
                assert response.status == 404
