"""The MCP server: tools from the OpenAPI document, plans and their budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.examples import examples

from moorage.cli.mcp.next_steps import TOOLS, answer_for_agent, for_agent
from moorage.cli.mcp.plans import EXPIRES_S, MAX_PLANS, OperationPlan, PlanBook, gpu_hours
from moorage.cli.mcp.tools import WRITES, chosen, operations
from moorage.common.model.errors import BudgetExhausted, InvalidInput, NotFound
from moorage.manager.api.http.openapi import describe
from moorage.manager.api.routes import ROUTES

DOCUMENT = describe(ROUTES, "1")
OPERATIONS = operations(DOCUMENT)


def batch(**fields: Any) -> dict[str, Any]:
    return {"body": {"command": ["true"], "resources": {"cuda.device": 2}, **fields}}


def test_every_write_is_in_the_document() -> None:
    described = {
        one["operationId"] for methods in DOCUMENT["paths"].values() for one in methods.values()
    }
    assert described >= WRITES
    assert sum(one.writes for one in OPERATIONS.values()) == len(WRITES)


def test_nothing_about_keys_secrets_and_people_is_a_tool() -> None:
    for one in OPERATIONS.values():
        assert not any(
            part in one.path
            for part in ("/keys", "secret", "users", "join", "/ca", "audit", "token")
        ), one.path
        assert one.writes == (one.method != "get")


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_arguments_have_a_complete_schema(name: str) -> None:
    schema = OPERATIONS[name].input_schema()
    Draft202012Validator.check_schema(schema)
    # Unresolved references raise here.
    list(
        Draft202012Validator(schema).iter_errors(
            {"body": {"steps": [{}], "resources": {}}, "ref": "a"}
        )
    )
    assert not {"follow", "If-Match"} & schema["properties"].keys()


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_short_schema_has_the_arguments_of_the_complete_one(name: str) -> None:
    short = OPERATIONS[name].short_schema()
    full = OPERATIONS[name].input_schema()
    Draft202012Validator.check_schema(short)
    assert short["properties"].keys() == full["properties"].keys()
    assert short.get("required") == full.get("required")


def test_short_schemas_accept_what_the_api_accepts() -> None:
    session = Draft202012Validator(OPERATIONS["create_session"].short_schema())
    accepted = {"command": ["true"], "resources": {"cpu": 1}, "runtime": "custom:mine"}
    assert session.is_valid({"body": accepted})
    assert not session.is_valid({"body": {"command": "true"}})
    endpoint = Draft202012Validator(OPERATIONS["update_endpoint"].short_schema())
    assert endpoint.is_valid({"name": "m", "body": {"image": None}}), "null resets a field"


def test_short_schemas_name_the_fields_of_an_order_once() -> None:
    sort = OPERATIONS["list_sessions"].short_schema()["properties"]["sort"]
    assert sort["pattern"].startswith("^-?(created_at|name|user|")
    order = Draft202012Validator(sort)
    assert order.is_valid("-priority")
    assert not order.is_valid("cost")


def test_examples_of_bodies_fit() -> None:
    one = OPERATIONS["create_session"]
    validator = Draft202012Validator(one.input_schema())
    assert validator.is_valid({"body": {"command": ["true"]}})
    assert not validator.is_valid({"body": {"command": "true"}})
    assert not validator.is_valid({})


def test_parameters_go_into_path_and_query() -> None:
    logs = OPERATIONS["get_session_logs"]
    assert logs.target({"ref": "a/b?c", "tail": 5}) == (
        "/v1/sessions/a%2Fb%3Fc/logs",
        {"tail": "5"},
    )
    with pytest.raises(KeyError, match="ref"):
        logs.target({})


def test_a_write_shows_what_it_changes() -> None:
    about = {name: one.about for name, one in OPERATIONS.items() if one.writes}
    assert about["stop_session"] == "/v1/sessions/{ref}"
    assert about["update_endpoint"] == about["scale_endpoint"] == "/v1/endpoints/{name}"
    assert about["create_session"] is None
    assert OPERATIONS["create_session"].plan_path == "/v1/sessions/plan"
    assert OPERATIONS["update_endpoint"].versioned


@pytest.mark.parametrize(
    ("names", "tools"),
    [
        (["explain_session", "stop_session"], {"explain_session", "plan_stop_session"}),
        (["plan_stop_session"], {"plan_stop_session"}),
        (["budgets", "usage"], {"list_budgets", "get_usage"}),
    ],
)  # fmt: skip
def test_tools_are_chosen_by_name_or_group(names: list[str], tools: set[str]) -> None:
    assert {one.tool for one in chosen(OPERATIONS, names).values()} == tools


def test_a_group_has_all_of_its_tools() -> None:
    found = chosen(OPERATIONS, ["endpoints"])
    assert {"list_endpoints", "create_endpoint", "undo_rollout"} <= found.keys()
    assert "list_sessions" not in found


def test_unknown_tools_are_refused_with_what_is_allowed() -> None:
    with pytest.raises(InvalidInput, match="--tools 'sesions' is neither a tool nor a group") as no:
        chosen(OPERATIONS, ["endpoints", "sesions"])
    groups, _, tools = no.value.next_step.partition("; tools: ")
    assert groups.removeprefix("groups: ").split(", ")[:3] == ["agents", "budgets", "endpoints"]
    assert "plan_create_session" in tools.split(", ")


TOOL_NAMES = {one.tool for one in OPERATIONS.values()}


@pytest.mark.parametrize(
    ("step", "shown"),
    [
        ("see `moorage ps --all`", "see `list_sessions`"),
        ("`moorage describe a` shows why", "`get_session` (ref: a) shows why"),
        ("`moorage stop a`, or use another", "`plan_stop_session` (ref: a), or use another"),
        ("`moorage groups describe`", "`get_group`"),
        (
            "`moorage endpoints set m rollout.canary=10`",
            "`plan_update_endpoint` (name: m, rollout.canary=10)",
        ),
        (
            "`moorage groups set NAME`",
            "`moorage groups set NAME` (a command that the user can run)",
        ),
        (
            "`moorage secrets set a`; `moorage ps`",
            "`moorage secrets set a` (a command that the user can run); `list_sessions`",
        ),
        ("wait", "wait"),
    ],
)
def test_next_steps_name_tools(step: str, shown: str) -> None:
    assert for_agent(step, TOOL_NAMES) == shown
    assert answer_for_agent({"holds": [{"next_step": step}], "detail": step}, TOOL_NAMES) == {
        "holds": [{"next_step": shown}],
        "detail": step,
    }


def test_next_steps_name_only_tools_that_are_offered() -> None:
    shown = for_agent("`moorage ps`", {"get_usage"})
    assert shown == "`moorage ps` (a command that the user can run)"


def test_tools_of_next_steps_exist() -> None:
    for command, tool in TOOLS.items():
        (found,) = [one for one in OPERATIONS.values() if one.tool == tool.name]
        assert not tool.argument or tool.argument in found.parameters, command


# -- plans -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "hours"),
    [
        ({"timeout_s": 3600}, 2),
        ({"timeout_s": 3600, "max_lifetime_s": 1800}, 1),
        ({"timeout_s": 3600, "retries": 2}, 6),
        ({"timeout_s": 3600, "cluster": {"size": 3}}, 6),
        (
            {"timeout_s": 3600, "cluster": {"size": 3, "sub": {"resources": {"cuda.shares": 0.5}}}},
            3,
        ),
        ({"resources": {"cpu": 1}}, 0),
        ({"type": "interactive", "max_lifetime_s": 7200}, 4),
    ],
)
def test_gpu_hours(fields: dict[str, Any], hours: float) -> None:
    assert gpu_hours(batch(**fields)["body"]) == pytest.approx(hours)


def test_what_has_no_end_has_no_place_in_a_budget() -> None:
    book = PlanBook(budget=10)
    with pytest.raises(InvalidInput, match="timeout_s"):
        book.check("create_session", batch())
    with pytest.raises(BudgetExhausted, match="no end"):
        book.check("create_endpoint", {"body": {}})
    assert book.check("stop_session", {"ref": "a"}) == 0
    assert PlanBook().check("create_session", batch()) == 0


def test_every_write_that_starts_work_is_counted_or_refused() -> None:
    harmless = {
        "stop_session",
        "stop_pipeline",
        "delete_endpoint",
        "execute_code",
        "interrupt_execution",
        "put_template",
    }
    for one in OPERATIONS.values():
        if one.writes and one.name not in harmless:
            with pytest.raises((BudgetExhausted, InvalidInput)):
                PlanBook(budget=0).check(one.name, batch(timeout_s=1))


def plan(book: PlanBook, plan_id: str, hours: float, now: float) -> OperationPlan:
    arguments = batch(timeout_s=1800 * hours)
    made = OperationPlan(
        plan_id,
        "create_session",
        arguments=arguments,
        expires_at=now + EXPIRES_S,
        etag=None,
        gpu_hours=book.check("create_session", arguments),
    )
    book.add(made, now)
    return made


def test_a_plan_is_used_once_and_expires() -> None:
    book = PlanBook()
    plan(book, "a", 1, now=0)
    plan(book, "b", 1, now=0)
    book.take("a", now=1)
    for plan_id, now in (("a", 1.0), ("b", EXPIRES_S), ("c", 1.0)):
        with pytest.raises(NotFound, match="plan again"):
            book.take(plan_id, now)


def test_plans_are_bounded() -> None:
    book = PlanBook()
    for number in range(MAX_PLANS + 1):
        plan(book, str(number), 1, now=0)
    with pytest.raises(NotFound):
        book.take("0", now=1)
    book.take("1", now=1)


@examples(100)
@given(
    st.lists(
        st.tuples(st.sampled_from(["plan", "apply", "refuse"]), st.integers(1, 4)), max_size=30
    )
)
def test_the_budget_is_never_exceeded(steps: list[tuple[str, int]]) -> None:
    book = PlanBook(budget=10)
    made = []
    applied = 0.0
    for number, (step, hours) in enumerate(steps):
        try:
            if step == "plan":
                made.append(plan(book, str(number), hours, now=0))
            elif made:
                taken = book.take(made.pop(0).id, now=1)
                if step == "refuse":
                    book.give_back(taken)
                else:
                    applied += taken.gpu_hours
        except BudgetExhausted:
            pass

        assert book.used == pytest.approx(applied)
        assert book.used <= 10
