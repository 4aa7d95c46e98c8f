"""Budgets, prices and ledger corrections."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.common.link.proxy_messages import UsageBatch
from moorage.common.model.errors import BudgetExhausted, InvalidInput, NotFound
from moorage.common.model.reasons import Reason
from moorage.common.model.roles import Role
from moorage.common.model.spec import (
    Cluster,
    EndpointSpec,
    Probe,
    SessionSpec,
    SubKernels,
    Workload,
)
from moorage.common.model.status import Status
from moorage.common.views.budgets import BudgetSpec, BudgetView, CorrectionSpec, PriceSpec
from moorage.common.views.keys import KeySpec
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader
from moorage.manager.loops.budget_controller import BudgetController
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.scrape import Scrape
from moorage.manager.serving.limit_shares import StoredShares
from moorage.manager.store import Store, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, FakeAgent
from .test_ledger import ANN, SYSTEM, end, move_back, records, run, used
from .test_usage_records import RECORD

pytestmark = pytest.mark.usefixtures("owners")

HOUR_MS = 3_600_000
WORK = SessionSpec(command=["x"], resources={"cpu": 1})


async def put(
    store: Store, kind: str, name: str, unit: str, *, period: str = "year", **limits: object
) -> None:
    await store.budgets.put(
        SYSTEM, kind, name, unit, period=period, spec=BudgetSpec.model_validate(limits)
    )


async def measure(store: Store) -> dict[str, BudgetView]:
    """The budgets by scope and unit, after the leader has added them up."""
    term = await store.leases.acquire("test", 60)
    assert term is not None
    await store.budgets.measure(term)
    return {f"{one.scope} {one.unit}": one for one in (await store.budgets.visible(SYSTEM)).items}


async def count(store: Store, sequence: int, **given: object) -> None:
    """A record for the current time instead of the start of the tests, which may have been on
    another day."""
    given = {"ended_ms": round(datetime.now(UTC).timestamp() * 1000)} | given
    given = {"began_ms": given["ended_ms"]} | given
    record = replace(RECORD, sequence=sequence, **given)  # type: ignore[arg-type]
    await store.usage_records.put("p", [UsageBatch("e", (record,))])


async def test_budgets_count_what_is_theirs(store: Store) -> None:
    agent = FakeAgent(store)
    kernel = await run(store, agent)
    await move_back(store, kernel, 10)
    key = await store.keys.create(
        SYSTEM, KeySpec(name="ci", user="ann", project="vision", role=Role.MEMBER)
    )
    await count(store, 1, key_id=key.id)
    await count(store, 2, project="speech", user="bob")
    for kind, name in (("project", "vision"), ("user", "ann"), ("key", "ci")):
        await put(store, kind, name, "tokens", hard=31)
        await put(store, kind, name, "gpu", soft=10_000)

    found = await measure(store)
    tokens = {kind: found[f"{kind} tokens"] for kind in ("project", "user", "key")}
    assert {kind: (one.used, one.level) for kind, one in tokens.items()} == dict.fromkeys(
        tokens, (30, "ok")
    )
    gpu = found["project gpu"]
    assert (gpu.level, 10_000 <= gpu.used <= 60_000) == ("soft", True), "also what still runs"
    assert (found["user gpu"].level, found["key gpu"].level) == ("soft", "ok"), "no key started it"
    await end(store, agent, kernel)
    assert 10_000 <= (await measure(store))["project gpu"].used <= 60_000


async def test_exhausted_budget_refuses_new_work_and_requests(store: Store) -> None:
    await store.keys.create(
        SYSTEM, KeySpec(name="ci", user="ann", project="vision", role=Role.MEMBER)
    )
    await store.keys.create(
        SYSTEM, KeySpec(name="other", user="bob", project="speech", role=Role.MEMBER)
    )
    await count(store, 1)
    await store.budgets.check(ANN, WORK)
    await put(store, "project", "vision", "tokens", period="month", hard=30)
    month = (await measure(store))["project tokens"]
    assert (month.level, month.used) == ("hard", 30)
    with pytest.raises(BudgetExhausted, match="project 'vision' is exhausted until") as refused:
        await store.budgets.check(ANN, WORK)

    assert refused.value.fields == {"resets_at": month.resets_at.isoformat()}
    assert (refused.value.code, refused.value.http) == ("budget-exhausted", 403)
    await store.budgets.check(Scope.system("bob", Owner("bob", "speech")), WORK)
    grants = {grant.project: grant.exhausted_until for grant in await store.keys.grants()}
    assert (grants["vision"], grants["speech"]) == (int(month.resets_at.timestamp()), 0)
    await put(store, "project", "vision", "tokens", period="month", hard=31)
    await store.budgets.check(ANN, WORK)
    await put(store, "project", "vision", "tokens", period="month", hard=5)
    with pytest.raises(BudgetExhausted):  # lowered below the used amount: at once
        await store.budgets.check(ANN, WORK)

    await store.budgets.delete(SYSTEM, "project", "vision", "tokens", period="month")
    await store.budgets.check(ANN, WORK)
    assert {grant.exhausted_until for grant in await store.keys.grants()} == {0}
    with pytest.raises(NotFound, match="no budget of tokens by the month"):
        await store.budgets.delete(SYSTEM, "project", "vision", "tokens", period="month")


async def test_soft_limit_warns_its_payers_only(store: Store) -> None:
    await store.keys.create(
        SYSTEM, KeySpec(name="ci", user="ann", project="vision", role=Role.MEMBER)
    )
    await store.keys.create(
        SYSTEM, KeySpec(name="other", user="bob", project="speech", role=Role.MEMBER)
    )
    await count(store, 1)
    assert await store.budgets.warnings(ANN) == []
    await put(store, "project", "vision", "tokens", period="month", soft=30, hard=60)
    month = (await measure(store))["project tokens"]
    at = f"{month.resets_at:%Y-%m-%dT%H:%M:%SZ}"
    text = "limit of the budget of project vision in tokens by the month is reached, until"
    assert await store.budgets.warnings(ANN) == [f"the soft {text} {at}"]
    await store.budgets.check(ANN, WORK)
    assert await store.budgets.warnings(Scope.system("bob", Owner("bob", "speech"))) == []
    grants = {grant.project: grant for grant in await store.keys.grants()}
    assert grants["vision"].warned_until == int(month.resets_at.timestamp())
    assert (grants["vision"].exhausted_until, grants["speech"].warned_until) == (0, 0)
    await put(
        store, "project", "vision", "tokens", period="month", soft=10, hard=20
    )  # below the used amount
    assert await store.budgets.warnings(ANN) == [f"the hard {text} {at}"]
    await put(store, "project", "vision", "tokens", period="month", soft=31)
    assert await store.budgets.warnings(ANN) == []
    assert {grant.warned_until for grant in await store.keys.grants()} == {0}


async def test_proxies_divide_what_is_left_of_a_hard_budget(store: Store) -> None:
    await store.keys.create(
        SYSTEM, KeySpec(name="ci", user="ann", project="vision", role=Role.MEMBER)
    )
    await store.keys.create(
        SYSTEM, KeySpec(name="other", user="bob", project="speech", role=Role.MEMBER)
    )
    await count(store, 1)

    for scope, name, unit in (
        ("project", "vision", "tokens"),
        ("user", "ann", "tokens_out"),
        ("key", "ci", "requests"),
        ("user", "ann", "gpu"),
    ):
        await put(store, scope, name, unit, period="month", hard=100)

    await put(store, "user", "ann", "tokens_in", period="month", soft=100)
    grants = {grant.project: grant.budgets for grant in await store.keys.grants()}
    assert [(one.subject, one.unit, one.hard) for one in grants["vision"]] == [
        ("budget/key/month/requests/ci", "requests", 100),
        ("budget/project/month/tokens/vision", "tokens", 100),
        ("budget/user/month/tokens_out/ann", "tokens_out", 100),
    ]
    assert grants["speech"] == ()
    names = ["project/speech", *(one.subject for one in grants["vision"])]
    rooms = dict[str, int | None]()

    def read(stored: StoredShares) -> StoredShares:
        rooms[stored.subject] = stored.room
        return stored

    used = (await measure(store))["project tokens"].used
    assert used > 0
    await store.limit_shares.change(names, read)
    assert (rooms["project/speech"], rooms["budget/project/month/tokens/vision"]) == (
        None,
        100 - used,
    )
    await store.database.fetch("UPDATE budgets SET measured_at = now() - interval '16 s'")
    rooms.clear()
    await store.limit_shares.change(names, read)
    assert rooms == {"project/speech": None}, "nobody knows what is left now"


async def test_budget_begins_anew_with_its_period(store: Store) -> None:
    before = round(datetime.now(UTC).timestamp() * 1000) - 2 * 86_400_000
    await count(store, 1, began_ms=before, ended_ms=before)
    await put(store, "project", "vision", "tokens", period="day", hard=30)

    # the records before this day are read
    await put(store, "user", "ann", "tokens", period="year", soft=1)
    assert (await measure(store))["project tokens"].used == 0
    await count(store, 2)
    day = (await measure(store))["project tokens"]
    assert (day.used, day.level) == (30, "hard")
    assert day.resets_at > datetime.now(UTC)
    await store.database.fetch("UPDATE budgets SET resets_at = now() - interval '1 second'")
    store.notifier.notify([Topic.KEYS])
    await store.budgets.check(ANN, WORK)
    assert {grant.exhausted_until for grant in await store.keys.grants()} <= {0}


async def test_session_stops_at_the_hard_limit_if_the_budget_says_so(store: Store) -> None:
    clock = StoreClock()
    await move_back(store, await run(store, FakeAgent(store)), 100)
    await store.database.fetch("DELETE FROM leases")
    leader = Leader(store, clock)
    async with leader:
        controller = BudgetController(store, leader, SessionTerminator(store, LOST_GRACE_S), clock)
        await put(store, "user", "ann", "gpu", hard=50_000)
        await controller.run_once()
        assert (await store.sessions.get(SYSTEM, "s")).status is Status.RUNNING
        await put(store, "user", "ann", "gpu", hard=50_000, policy="stop")
        await controller.run_once()
        view = await store.sessions.get(SYSTEM, "s")
        assert (view.status, view.reason) == (Status.TERMINATING, Reason.BUDGET_EXHAUSTED)
        assert view.detail == "the budget of user ann is exhausted"


SERVED = EndpointSpec(name="m", engine="custom", command=["x"], probe=Probe(), resources={"cpu": 1})


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        (WORK, False),
        (SERVED, False),
        (WORK.model_copy(update={"resources": {"cpu": 1, "cuda.device": "0"}}), False),
        (WORK.model_copy(update={"resources": {"cuda.device": 1}}), True),
        (WORK.model_copy(update={"resources": {"cuda.shares": "0.5"}}), True),
        (SERVED.model_copy(update={"resources": {"rocm.device": "2"}}), True),
        (
            WORK.model_copy(
                update={"cluster": Cluster(size=2, sub=SubKernels(resources={"cuda.device": 1}))}
            ),
            True,
        ),
    ],
)
async def test_a_budget_of_gpus_holds_only_work_with_gpus(
    store: Store, spec: Workload, held: bool
) -> None:
    await put(store, "user", "ann", "gpu", hard=0)
    if held:
        with pytest.raises(BudgetExhausted):
            await store.budgets.check(ANN, spec)
    else:
        await store.budgets.check(ANN, spec)

    await put(store, "user", "ann", "cpu", hard=0)
    with pytest.raises(BudgetExhausted):
        await store.budgets.check(ANN, spec)


async def test_a_budget_of_gpus_stops_only_work_with_gpus(store: Store) -> None:
    for name, resources in (("cpus", {"cpu": 1}), ("gpus", {"cpu": 1, "cuda.device": 1})):
        await store.sessions.create(
            ANN, WORK.model_copy(update=dict(name=name, resources=resources))
        )
        served = SERVED.model_copy(update=dict(name=f"m-{name}", resources=resources))
        await store.endpoints.create(ANN, served, user_labels={})

    async def held(unit: str) -> list[str]:
        ids = await store.budgets.sessions("user", "ann", unit)
        return [(await store.sessions.get(SYSTEM, one)).name for one in ids]

    assert await held("gpu") == ["gpus"]
    assert sorted(await held("cpu")) == ["cpus", "gpus"]
    await put(store, "user", "ann", "gpu", hard=0, policy="stop")
    assert await suspended(store) == {"m-gpus"}
    await put(store, "user", "ann", "money", hard=0, policy="stop")
    assert await suspended(store) == {"m-cpus", "m-gpus"}


async def suspended(store: Store) -> set[str]:
    """The models whose requests are refused, which are those whose replicas stop."""
    ids = [row["id"] for row in await store.database.fetch("SELECT id FROM endpoints")]
    refused = {
        row["model"]
        for row in await store.database.fetch(SQL["model_routes"], ids, [])
        if row["suspended_until"] is not None
    }
    stopped = {
        row["name"]
        for row in await store.database.fetch(SQL["endpoints_to_reconcile"], ids, 60.0)
        if row["stop_name"] is not None
    }
    assert refused == stopped
    return refused


async def test_cost_follows_the_prices_of_each_hour(store: Store) -> None:
    agent = FakeAgent(store)
    kernel = await run(store, agent)
    await end(store, agent, kernel)
    await store.database.fetch("ALTER TABLE ledger DISABLE TRIGGER ledger_stays")
    await store.database.fetch(
        "UPDATE ledger SET began_at = date_trunc('hour', now()) - interval '150 minutes', "
        "ended_at = date_trunc('hour', now()), amount = rate * 9000"
    )
    await store.database.fetch(
        "INSERT INTO prices (unit, device, resource_group, since, price, changed_by) "
        "SELECT p.unit, p.device, p.rg, date_trunc('hour', now()) - p.ago * interval '1 hour', p.price, 't' "
        "FROM (VALUES ('gpu', '', '', 100, 2000000), ('gpu', 'H100', '', 2, 3000000), "
        "('gpu', 'H100', 'default', 1, 5000001), ('gpu', 'A100', '', 1, 9000000), "
        "('memory', '', '', 100, 333333)) AS p(unit, device, rg, ago, price)"
    )
    [whole] = await used(store)
    gpu = 2_000_000 // 2 + 3_000_000 + 5_000_001
    assert whole.cost == gpu + 3 * 333_333 * 9000 // 3600
    hours = await used(store, bucket="hour")
    assert [one.gpu_ms for one in hours] == [HOUR_MS // 2, HOUR_MS, HOUR_MS]
    assert abs(sum(one.cost for one in hours) - whole.cost) <= len(hours), (
        "each is cut to millionths"
    )
    await put(store, "project", "vision", "money", hard=whole.cost + 1)
    assert (await measure(store))["project money"].used in (whole.cost, 0), "0 around the new year"


@pytest.mark.parametrize(
    ("price", "gpu", "applies"),
    [
        ("H100", "H100", True),
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("H100", "NVIDIA H100 (fake)", True),
        ("h100", "NVIDIA H100 PCIe", True),
        ("H100 80GB", "NVIDIA H100 80GB HBM3", True),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", True),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("MI300X", "AMD Instinct MI300X OAM", True),
        ("H100", "NVIDIA GH100", False),
        ("H100", "NVIDIA H200", False),
        ("L4", "NVIDIA L40S", False),
        ("H100 HBM3", "NVIDIA H100 80GB HBM3", False),
        ("NVIDIA H100 80GB HBM3", "H100", False),
        ("H100", "", False),
        ("%", "NVIDIA H100", False),
    ],
)
async def test_a_price_names_a_gpu_as_people_do(
    store: Store, price: str, gpu: str, applies: bool
) -> None:
    spec = PriceSpec(unit="gpu", price=2_000_000, device=price)
    await store.budgets.put_price(SYSTEM, spec)
    [row] = await store.database.fetch("SELECT ledger_price('gpu', $1, 'default', now()) AS p", gpu)
    assert row["p"] == (2_000_000 if applies else 0)


async def test_the_price_with_the_longest_name_applies(store: Store) -> None:
    for number, device in enumerate(("", "H100", "H100 80GB", "NVIDIA H100 80GB HBM3 X"), 1):
        await store.budgets.put_price(SYSTEM, PriceSpec(unit="gpu", price=number, device=device))
    rows = await store.database.fetch(
        "SELECT ledger_price('gpu', gpu, 'default', now()) AS p FROM unnest($1::text[]) AS gpu",
        ["NVIDIA A100", "NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3", "H100"],
    )
    assert [row["p"] for row in rows] == [1, 2, 3, 2]


async def test_metrics_of_projects_and_budgets(store: Store) -> None:
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    await count(store, 1, ended_ms=now_ms)
    await count(store, 2, ended_ms=now_ms - 86_400_000)
    agent = FakeAgent(store)
    await move_back(store, await run(store, agent), 10)
    await put(store, "project", "vision", "tokens", period="day", soft=10, hard=60)
    await put(store, "user", "ann", "tokens", period="day", soft=15)
    await put(store, "user", "bob", "gpu", period="year", hard=0)
    await measure(store)
    metrics = ManagerMetrics()
    scrape = Scrape(store, metrics, StoreClock())
    rendered = (await scrape.render_tenants()).decode()
    assert b"vision" not in await scrape.render(), "which needs no key"
    samples = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in rendered.splitlines()
        if line.startswith(("moorage_ledger", "moorage_budget"))
    }
    assert samples['moorage_ledger_tokens{kind="in",project="vision"}'] == RECORD.tokens_in
    assert samples['moorage_ledger_requests{project="vision"}'] == RECORD.requests
    assert 0 <= samples['moorage_ledger_gpu_seconds{project="vision"}'] <= 60
    assert samples['moorage_ledger_cost{project="vision"}'] == 0
    ratio = 'moorage_budget_used_ratio{{name="{}",period="{}",scope="{}",unit="{}"}}'
    assert samples[ratio.format("vision", "day", "project", "tokens")] == 0.5
    assert samples[ratio.format("ann", "day", "user", "tokens")] == 2
    assert samples[ratio.format("bob", "year", "user", "gpu")] == 1


async def test_prices_of_hours_that_have_passed_stay(store: Store) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    first = await store.budgets.put_price(SYSTEM, PriceSpec(unit="gpu", price=5))
    assert first.since >= hour
    changed = await store.budgets.put_price(SYSTEM, PriceSpec(unit="gpu", price=6))
    assert [one.price for one in (await store.budgets.prices()).items] == [changed.price] == [6]

    for since, message in (
        (hour - timedelta(hours=1), "is in the past"),
        (hour + timedelta(minutes=90), "not a full hour"),
    ):
        with pytest.raises(InvalidInput, match=message):
            await store.budgets.put_price(SYSTEM, PriceSpec(unit="gpu", price=5, since=since))


async def test_correction_is_a_record_of_its_own(store: Store) -> None:
    agent = FakeAgent(store)
    kernel = await run(store, agent)
    await move_back(store, kernel, 100)
    await end(store, agent, kernel)
    [before] = await used(store)
    spec = CorrectionSpec(
        unit="gpu",
        amount=-40_000,
        at=datetime.now(UTC),
        reason="a fault",
        project="vision",
        user="ann",
    )
    made = await store.budgets.correct(SYSTEM, spec)
    [after] = await used(store)
    assert after.gpu_ms == before.gpu_ms - 40_000
    assert len(await records(store)) == 4
    assert made.id > 0
    await put(store, "user", "ann", "gpu", soft=1)
    assert (await measure(store))["user gpu"].used == after.gpu_ms

    for wrong, message in (
        ({"amount": 0}, "corrects nothing"),
        ({"at": "2200-01-01T00:00:00Z"}, "future"),
    ):
        with pytest.raises(InvalidInput, match=message):
            await store.budgets.correct(
                SYSTEM, CorrectionSpec.model_validate({**spec.model_dump(), **wrong})
            )


async def test_amounts_beyond_all_bounds_keep_the_others_readable(store: Store) -> None:
    """An administrator's entry that is wrong by a factor of a million must not break the sums for
    everyone."""
    await put(store, "project", "vision", "money", hard=5)
    await put(store, "project", "speech", "tokens_in", hard=5)
    await count(store, 1, project="speech")
    await store.budgets.put_price(SYSTEM, PriceSpec(unit="tokens_in", price=(1 << 53) - 1))

    for _ in range(2):
        for unit, amount in (("tokens_in", (1 << 53) - 1), ("gpu", -((1 << 53) - 1))):
            spec = CorrectionSpec.model_validate(
                {
                    "unit": unit,
                    "amount": amount,
                    "at": datetime.now(UTC),
                    "reason": "x",
                    "project": "vision",
                }
            )
            await store.budgets.correct(SYSTEM, spec)

    found = await measure(store)
    assert (found["project money"].level, found["project tokens_in"].level) == ("hard", "hard")
    shown = {one.project: one for one in await used(store)}
    assert shown["speech"].tokens_in > 0
    assert shown["vision"].cost == (1 << 63) - 1


async def gaps(store: Store) -> set[tuple[str, str, str, bool]]:
    rows = await store.budgets.price_gaps()
    return {(r["unit"], r["resource_group"], r["device"], r["begins"] is None) for r in rows}


async def test_what_the_agents_offer_without_a_price_is_found(store: Store) -> None:
    await FakeAgent(store, gpu_model="NVIDIA A100").report()
    model = "NVIDIA A100"
    assert await gaps(store) == set(), "without prices, everything is free on purpose"

    await store.budgets.put_price(SYSTEM, PriceSpec(unit="gpu", device="V100", price=1))
    assert await gaps(store) == {("gpu", "default", model, True)}
    later = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=2)
    price = PriceSpec(unit="gpu", resource_group="default", price=1, since=later)
    await store.budgets.put_price(SYSTEM, price)
    assert await gaps(store) == {("gpu", "default", model, False)}
    await store.budgets.put_price(SYSTEM, PriceSpec(unit="gpu", device=model, price=0))
    assert await gaps(store) == set(), "a price of 0 is a price"

    await store.budgets.put_price(SYSTEM, PriceSpec(unit="cpu", resource_group="lab", price=1))
    await store.budgets.put_price(SYSTEM, PriceSpec(unit="tokens_in", price=1, since=later))
    assert await gaps(store) == {("cpu", "default", "", True), ("tokens_in", "", "", False)}


async def test_budgets_against_which_nothing_counts_are_found(store: Store) -> None:
    async def doubts() -> dict[tuple[str, str], list[str]]:
        names = ("archived", "without_gpus", "unpriced")
        return {
            (row["name"], row["unit"]): [name for name in names if row[name]]
            for row in await store.budgets.doubts()
        }

    for unit in ("gpu", "money", "cpu"):
        await put(store, "project", "vision", unit, hard=1)
        await put(store, "user", "ann", unit, hard=1)

    for name in ("vision", "ann"):
        found = await doubts()
        assert (found[name, "gpu"], found[name, "money"]) == (["without_gpus"], ["unpriced"])
        assert (name, "cpu") not in found

    await FakeAgent(store).report()
    await store.budgets.put_price(SYSTEM, PriceSpec(unit="gpu", device="V100", price=1))
    assert await doubts() == {
        ("ann", "money"): ["unpriced"],
        ("vision", "money"): ["unpriced"],
    }, "V100 has a price, but there is only H100"
    await store.budgets.put_price(SYSTEM, PriceSpec(unit="gpu", price=1))
    assert await doubts() == {}

    await store.database.fetch(
        "UPDATE projects SET resource_groups = '{other}' WHERE name = 'vision' RETURNING name"
    )
    assert await doubts() == {
        ("vision", "gpu"): ["without_gpus"],
        ("vision", "money"): ["unpriced"],
    }
    await store.budgets.put_price(SYSTEM, PriceSpec(unit="cpu", price=1))
    assert await doubts() == {("vision", "gpu"): ["without_gpus"]}
