"""Cron jobs: the REST resource, and the loop that starts their runs, over a real Postgres. Tests
move rows in time, because the loop goes by the database's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.run_limits import GroupLimits
from moorage.manager.api.pipelines.cron_submission import CronSubmitter
from moorage.manager.loops import Leader
from moorage.manager.loops.cron_controller import CronController

from .served_api import MEMBER_KEY, Api, check_problem

HOURLY = {
    "name": "report",
    "cron": "0 * * * *",
    "session": {"command": ["x"], "resources": {"cpu": 2}},
}
PIPELINE = {"name": "any", "steps": [{"name": "one", "spec": {"command": ["x"]}}]}


class Cron:
    """The loop of the leader over an API, with rows that tests age."""

    def __init__(self, api: Api, leader: Leader) -> None:
        self.api = api
        self.leader = leader
        self.fails: list[Exception] = []
        self._start = CronSubmitter(api.services).start
        services = api.services
        self.controller = CronController(
            api.store, leader, services.terminator, api.clock, start=self.start
        )

    async def start(self, *args: Any, **options: Any) -> None:
        if self.fails:
            raise self.fails.pop()
        await self._start(*args, **options)

    async def create(self, key: str = MEMBER_KEY, **fields: Any) -> dict[str, Any]:
        body = {name: value for name, value in (HOURLY | fields).items() if value is not None}
        response, made = await self.api.request("POST", "/v1/cron-jobs", key=key, json=body)
        assert response.status == 201, made
        return dict(made)

    async def make_due(self, ago_s: float = 0.0, name: str = "report") -> datetime:
        """The next run is due at the last full hour, ``ago_s`` seconds ago by the database."""
        (row,) = await self.api.store.database.fetch(
            "UPDATE cron_jobs SET next_at = now() - make_interval(secs => $2) WHERE name = $1 "
            "RETURNING next_at",
            name,
            ago_s,
        )
        due: datetime = row["next_at"]
        return due

    async def runs(self, name: str = "report") -> list[dict[str, Any]]:
        _, page = await self.api.request("GET", f"/v1/cron-jobs/{name}/runs")
        return list(page["items"])

    async def job(self, name: str = "report") -> dict[str, Any]:
        _, found = await self.api.request("GET", f"/v1/cron-jobs/{name}")
        return dict(found)

    async def act(self, operation: str, key: str = MEMBER_KEY, name: str = "report") -> Any:
        return await self.api.request("POST", f"/v1/cron-jobs/{name}/{operation}", key=key)

    async def look(self) -> None:
        self.api.clock.advance(10.0)
        await self.controller.run_once()


@pytest.fixture
async def cron(api: Api) -> Cron:
    leader = Leader(api.store, api.clock)
    await leader.run_once()
    return Cron(api, leader)


async def test_a_due_run_starts_once_with_the_rights_of_its_owner(cron: Cron) -> None:
    made = await cron.create()
    assert (made["user"], made["project"], made["suspended"]) == ("ada", "lovelace", False)
    due = await cron.make_due()
    await cron.look()
    await cron.look()

    [run] = await cron.runs()
    assert run["state"] == "pending"
    assert datetime.fromisoformat(run["scheduled_at"]) == due
    _, session = await cron.api.request("GET", f"/v1/sessions/{run['session_id']}")
    assert (session["user"], session["isolated"]) == ("ada", True)
    _, history = await cron.api.request("GET", f"/v1/sessions/{run['session_id']}/history")
    assert history["items"][0]["actor"] == "cron:report"
    assert session["name"] == f"report-{due:%Y%m%d%H%M}"
    job = await cron.job()
    assert job["last_run"]["id"] == run["id"]
    assert datetime.fromisoformat(job["next_at"]) > datetime.now(UTC)


async def test_two_managers_at_the_same_minute_start_one_run(cron: Cron) -> None:
    await cron.create()
    due = await cron.make_due()
    job = await cron.api.store.cron_jobs.get(_all(cron), "report")
    await asyncio.gather(
        *(cron.controller.handle(job, due, cron.leader.term or 0) for _ in range(5))
    )
    assert len(await cron.runs()) == 1
    assert await cron.api.count("sessions") == 1


async def test_a_former_leader_starts_nothing(cron: Cron) -> None:
    await cron.create()
    due = await cron.make_due()
    job = await cron.api.store.cron_jobs.get(_all(cron), "report")
    await cron.controller.handle(job, due, (cron.leader.term or 0) - 1)
    assert await cron.runs() == []


async def test_a_run_whose_manager_stopped_is_submitted_by_the_next_one(cron: Cron) -> None:
    await cron.create()
    await cron.make_due()
    cron.fails.append(StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await cron.look()
    [run] = await cron.runs()
    assert (run["state"], run["session_id"]) == ("starting", None)

    await cron.look()
    assert (await cron.runs())[0]["state"] == "starting", "its manager may still submit it"
    await _age_runs(cron, 30)
    await asyncio.gather(cron.look(), cron.look())
    [run] = await cron.runs()
    assert run["state"] == "pending"
    assert await cron.api.count("sessions") == 1


async def test_a_run_that_lost_its_manager_for_long_is_skipped(cron: Cron) -> None:
    await cron.create()
    await cron.make_due()
    cron.fails.append(StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await cron.look()
    await _age_runs(cron, 300)
    await cron.look()
    [run] = await cron.runs()
    assert (run["state"], run["reason"]) == (
        "skipped",
        "its manager stopped, and its deadline has passed",
    )
    assert await cron.api.count("sessions") == 0


@pytest.mark.parametrize(
    ("fields", "states"),
    [
        ({}, ["missed"]),
        ({"missed": "run-once"}, ["pending", "missed"]),
        ({"missed": "run-once", "start_deadline_s": 1}, ["missed"]),
    ],
)
async def test_the_manager_is_down_for_a_day(
    cron: Cron, fields: dict[str, Any], states: list[str]
) -> None:
    await cron.create(**fields)
    await cron.make_due(86_400 - 60)
    await cron.look()
    runs = await cron.runs()
    assert [run["state"] for run in runs] == states
    lost = runs[-1]["missed"] + (len(states) - 1)
    # The last of them was due at the last full hour, which may be on time.
    assert lost in (24, 25) or states == ["missed"]


@pytest.mark.parametrize(
    ("concurrency", "states", "sessions"),
    [
        ("forbid", ["skipped", "pending"], ["PENDING"]),
        ("allow", ["pending", "pending"], ["PENDING", "PENDING"]),
        ("replace", ["pending", "stopped"], ["CANCELLED", "PENDING"]),
    ],
)
async def test_the_previous_run_has_not_ended(
    cron: Cron, concurrency: str, states: list[str], sessions: list[str]
) -> None:
    await cron.create(concurrency=concurrency)
    await cron.make_due(61)
    await cron.look()
    await cron.make_due()
    await cron.look()
    assert [run["state"] for run in await cron.runs()] == states
    _, page = await cron.api.request("GET", "/v1/sessions?sort=created_at")
    assert [session["status"] for session in page["items"]] == sessions


async def test_pipelines_run_as_well(cron: Cron) -> None:
    await cron.create(session=None, pipeline=PIPELINE, concurrency="replace")
    due = await cron.make_due(61)
    await cron.look()
    [run] = await cron.runs()
    assert (run["state"], run["pipeline"]) == ("pending", f"report-{due:%Y%m%d%H%M}")

    await cron.make_due()
    await cron.look()
    assert [run["state"] for run in await cron.runs()] == ["pending", "stopped"]
    _, page = await cron.api.request("GET", "/v1/pipelines")
    assert [pipeline["created_by"] for pipeline in page["items"]] == ["cron:report"] * 2


async def test_templates_are_resolved_at_each_run(cron: Cron) -> None:
    template = {"parameters": {"n": {"type": "integer"}}, "spec": {"command": ["x", "{{ n }}"]}}
    await cron.api.request("PUT", "/v1/templates/train", key=MEMBER_KEY, json=template)
    await cron.create(session=None, template="train", parameters={"n": 3})
    template["spec"] = {"command": ["y", "{{ n }}"]}
    await cron.api.request("PUT", "/v1/templates/train", key=MEMBER_KEY, json=template)
    await cron.make_due()
    await cron.look()
    [run] = await cron.runs()
    _, session = await cron.api.request("GET", f"/v1/sessions/{run['session_id']}")
    assert (session["template"], session["spec"]["command"]) == ("train@2", ["y", "3"])


async def _disable_user(api: Api) -> None:
    await api.request("PATCH", "/v1/users/ada", json={"status": "disabled"})


async def _remove_member(api: Api) -> None:
    await api.request("DELETE", "/v1/projects/lovelace/members/ada")


async def _make_viewer(api: Api) -> None:
    await api.request("PUT", "/v1/projects/lovelace/members/ada", json={"role": "viewer"})


async def _disable_project(api: Api) -> None:
    await api.store.database.fetch(
        "UPDATE projects SET status = 'disabled' WHERE name = 'lovelace'"
    )


async def _exhaust_quota(api: Api) -> None:
    await api.request("PUT", "/v1/quotas/user/ada", json={"pending": 0})


async def _lower_limits(api: Api) -> None:
    limits = GroupLimits.model_validate({"max_per_session": {"cpu": 1}})
    await api.store.groups.put("default", GroupOptions(limits=limits), actor="t")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_disable_user, "user 'ada' is disabled"),
        (_remove_member, "user 'ada' has no role in project 'lovelace'"),
        (_make_viewer, "has the role 'viewer'"),
        (_disable_project, "project 'lovelace' is disabled"),
        (_exhaust_quota, "may have 0 pending sessions"),
        (_lower_limits, "cpu"),
    ],
)
async def test_a_run_is_refused_when_the_owner_may_not_submit_it(
    cron: Cron, change: Callable[[Api], Awaitable[None]], reason: str
) -> None:
    await cron.create()
    await change(cron.api)
    for number in (1, 2):
        await cron.make_due(100 - number)
        await cron.look()
        assert (await cron.job())["refusals"] == number

    first, second = await cron.runs()
    assert (first["state"], second["state"]) == ("refused", "refused")
    assert reason in first["reason"]
    assert await cron.api.count("sessions") == 0


async def test_a_run_that_starts_ends_the_row_of_refusals(cron: Cron) -> None:
    await cron.create()
    await _exhaust_quota(cron.api)
    await cron.make_due(50)
    await cron.look()
    await cron.api.request("PUT", "/v1/quotas/user/ada", json={"pending": 5})
    await cron.make_due()
    await cron.look()
    assert (await cron.job())["refusals"] == 0


async def test_the_clock_goes_back(cron: Cron) -> None:
    """A run that was started comes again by the clock, and does not start again; the next run is
    not in the far future for ever."""
    await cron.create()
    due = await cron.make_due()
    await cron.look()
    await cron.api.store.database.fetch("UPDATE cron_jobs SET next_at = $1", due)
    await cron.look()
    assert len(await cron.runs()) == 1
    assert await cron.api.count("sessions") == 1

    await cron.api.store.database.fetch(
        "UPDATE cron_jobs SET planned_at = now() + interval '1 year', "
        "next_at = now() + interval '1 year'"
    )
    await cron.look()
    next_at = datetime.fromisoformat((await cron.job())["next_at"])
    assert timedelta() < next_at - datetime.now(UTC) <= timedelta(hours=1)


async def test_old_runs_are_forgotten_and_never_repeated(cron: Cron) -> None:
    await cron.create(history=2, concurrency="replace")
    first = await cron.make_due(100)
    await cron.look()
    for ago_s in (90, 80, 70):
        await cron.make_due(ago_s)
        await cron.look()
    await cron.look()
    assert len(await cron.runs()) <= 3
    before = await cron.api.count("sessions")
    await cron.api.store.database.fetch("UPDATE cron_jobs SET next_at = $1", first)
    await cron.look()
    assert await cron.api.count("sessions") == before


async def test_suspend_resume_and_run_now(cron: Cron) -> None:
    await cron.create()
    await cron.make_due()
    _, suspended = await cron.act("suspend")
    assert (suspended["suspended"], suspended["next_at"]) == (True, None)
    await cron.look()
    assert await cron.runs() == []

    response, run = await cron.act("run")
    assert (response.status, run["state"], run["by_hand"]) == (201, "pending", True)
    assert run["created_by"] == "key:ada"
    refused, problem = await cron.act("run")
    check_problem(refused, problem, 409, "conflict")

    _, resumed = await cron.act("resume")
    assert not resumed["suspended"]
    assert resumed["next_at"] is not None
    assert len(await cron.runs()) == 1


async def test_changes_need_the_version_that_they_are_based_on(cron: Cron) -> None:
    made = await cron.create()
    body = {"cron": "0 7 * * *", "session": {"command": ["y"]}}
    path = "/v1/cron-jobs/report"
    tag = {"If-Match": f'"{made["version"]}"'}
    changed, view = await cron.api.request("PUT", path, key=MEMBER_KEY, json=body, headers=tag)
    assert (changed.status, view["spec"]["cron"]) == (200, "0 7 * * *")
    assert changed.headers["ETag"] == f'"{view["version"]}"' != f'"{made["version"]}"'
    refused, problem = await cron.api.request("PUT", path, key=MEMBER_KEY, json=body, headers=tag)
    check_problem(refused, problem, 412, "precondition-failed")

    response, problem = await cron.api.request("POST", "/v1/cron-jobs", key=MEMBER_KEY, json=HOURLY)
    check_problem(response, problem, 409, "conflict")
    gone, _ = await cron.api.request("DELETE", path, key=MEMBER_KEY)
    assert gone.status == 200
    missing, problem = await cron.api.request("GET", path)
    check_problem(missing, problem, 404, "not-found")


async def test_secret_values_never_come_back(cron: Cron) -> None:
    secret = {"API_TOKEN": "hunter2hunter2"}
    made = await cron.create(session={"command": ["x"], "env": secret})
    assert "hunter2" not in str(made)
    assert made["warnings"]
    body = {key: value for key, value in made["spec"].items() if key != "name"}
    response, problem = await cron.api.request("PUT", "/v1/cron-jobs/report", json=body)
    check_problem(response, problem, 422, "invalid-input")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "0 0 31 4 */2"}, "cron"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "* * * *"}, "cron"),
        ({"time_zone": "Europe/Nowhere"}, "time_zone"),
        ({"session": {"command": ["x"], "starts_at": "2030-01-01T00:00:00Z"}}, "session"),
        ({"session": None}, "body"),
        ({"pipeline": PIPELINE}, "body"),
        ({"history": 0}, "history"),
        ({"start_deadline_s": 0}, "start_deadline_s"),
        ({"name": "x" * 101}, "name"),
        ({"starts_at": "2030-01-01T00:00:00Z", "ends_at": "2029-01-01T00:00:00Z"}, "ends_at"),
    ],
)
async def test_invalid_cron_jobs_are_refused(
    cron: Cron, fields: dict[str, Any], field: str
) -> None:
    body = {name: value for name, value in (HOURLY | fields).items() if value is not None}
    response, problem = await cron.api.request("POST", "/v1/cron-jobs", json=body)
    check_problem(response, problem, 422, "invalid-input")
    assert problem["errors"][0]["field"] == field


async def test_restricted_keys_and_others_change_nothing(cron: Cron) -> None:
    """A run has the rights of the owner, so a key with fewer rights must not decide what it
    does."""
    await cron.create(key=await _administrator(cron))
    for method, path in (("PUT", ""), ("POST", "/run"), ("POST", "/suspend"), ("DELETE", "")):
        body = (
            {"json": {"cron": "@daily", "session": {"command": ["y"]}}} if method == "PUT" else {}
        )
        response, problem = await cron.api.request(
            method, f"/v1/cron-jobs/report{path}", key=MEMBER_KEY, **body
        )
        check_problem(response, problem, 403, "forbidden")

    spec = {"name": "few", "user": "ada", "project": "lovelace", "max_priority": 1}
    _, few = await cron.api.request("POST", "/v1/keys", json=spec)
    response, problem = await cron.api.request(
        "POST", "/v1/cron-jobs", key=few["secret"], json=HOURLY | {"name": "own"}
    )
    check_problem(response, problem, 403, "forbidden")
    assert "restricted" in problem["detail"]


async def test_whoever_changes_what_runs_becomes_the_owner(cron: Cron) -> None:
    """So a project admin cannot run a program with the rights of an administrator."""
    await cron.create(key=await _administrator(cron))
    spec = {
        "name": "chief",
        "user": "chief",
        "project": "lovelace",
        "role": "project-admin",
        "create_missing": True,
    }
    _, chief = await cron.api.request("POST", "/v1/keys", json=spec)
    body = {"cron": "@daily", "session": {"command": ["y"]}}
    response, problem = await cron.api.request(
        "PUT", "/v1/cron-jobs/report", key=chief["secret"], json=body
    )
    assert (response.status, problem["user"]) == (200, "chief")
    await cron.make_due()
    await cron.look()
    [run] = await cron.runs()
    _, session = await cron.api.request("GET", f"/v1/sessions/{run['session_id']}")
    assert (session["user"], session["isolated"]) == ("chief", True)


async def test_plan_shows_the_next_times(api: Api) -> None:
    body = {"cron": "30 2 * * *", "time_zone": "Europe/Prague"}
    response, plan = await api.request("POST", "/v1/cron-jobs/plan?count=3", json=body)
    assert (response.status, len(plan["times"])) == (200, 3)
    body = {"cron": "0 0 30 2 *"}
    response, problem = await api.request("POST", "/v1/cron-jobs/plan", json=body)
    check_problem(response, problem, 422, "invalid-input")
    assert "never comes" in problem["detail"]


async def _administrator(cron: Cron) -> str:
    """A key of root for the project of ada."""
    spec = {"name": "boss", "user": "root", "project": "lovelace", "role": "admin"}
    _, made = await cron.api.request("POST", "/v1/keys", json=spec)
    return str(made["secret"])


async def _age_runs(cron: Cron, seconds: float) -> None:
    await cron.api.store.database.fetch(
        "UPDATE cron_runs SET created_at = created_at - make_interval(secs => $1), "
        "scheduled_at = scheduled_at - make_interval(secs => $1)",
        seconds,
    )


def _all(cron: Cron) -> Any:
    from moorage.manager.identity.scope import Scope

    return Scope.system()


async def test_calendar(cron: Cron) -> None:
    await cron.create()
    await cron.create(name="often", cron="* * * * *")
    due = await cron.make_due()
    await cron.look()
    session = {"command": ["x"], "name": "later"}
    at = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
    await cron.api.request("POST", "/v1/sessions", key=MEMBER_KEY, json=session | {"starts_at": at})
    period = {
        "start": (due - timedelta(days=1)).isoformat(),
        "end": (due + timedelta(days=3)).isoformat(),
    }
    _, calendar = await cron.api.request("GET", "/v1/calendar", key=MEMBER_KEY, params=period)
    entries = calendar["entries"]
    assert calendar["complete"]
    assert [entry["at"] for entry in entries] == sorted(entry["at"] for entry in entries)
    kinds = {(entry["kind"], entry["name"]) for entry in entries}
    assert {("run", "report"), ("coming", "report"), ("coming", "often")} < kinds
    assert ("session", "later") in kinds
    assert len(entries) < 20, "many runs a day are one entry"
    assert max(entry["count"] for entry in entries) == 24 * 60

    period["end"] = (due + timedelta(days=90)).isoformat()
    response, problem = await cron.api.request("GET", "/v1/calendar", params=period)
    check_problem(response, problem, 422, "invalid-input")
