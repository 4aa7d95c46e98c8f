"""The fake manager accepts the API's calls as the store and the services do."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any

from fake_manager import FakeManager
from tests.api_calls import called_by_the_api, class_of
from tests.clocks import StoreClock

from moorage.manager.store import Store

STORE = Store("postgresql://localhost/never-connected", StoreClock())


def _part(manager: FakeManager, name: str) -> Any:
    found = getattr(manager.services, name, None)
    return found if found is not None else getattr(manager.store, name, None)


def _parameters(function: Any) -> dict[str, Parameter]:
    return {
        name: one for name, one in inspect.signature(function).parameters.items() if name != "self"
    }


def _order(parameters: dict[str, Parameter]) -> list[str]:
    return [one.name for one in parameters.values() if one.kind is Parameter.POSITIONAL_OR_KEYWORD]


def _differences(real: Any, fake: Any) -> list[str]:
    given = _parameters(real)
    taken = _parameters(fake)
    takes_all = any(one.kind is Parameter.VAR_KEYWORD for one in taken.values())
    needed = {one.name for one in given.values() if one.default is Parameter.empty}
    found = [f"lacks {name}" for name in sorted(needed - taken.keys()) if not takes_all]
    named = {name for name, one in taken.items() if one.kind is not Parameter.VAR_KEYWORD}
    found += [f"adds {name}" for name in sorted(named - given.keys())]
    both = min(len(_order(given)), len(_order(taken)))
    if _order(given)[:both] != _order(taken)[:both]:
        found.append(f"takes {_order(taken)} in place of {_order(given)}")
    if inspect.iscoroutinefunction(real) is not inspect.iscoroutinefunction(fake):
        found.append("is awaited otherwise")

    return found


def test_fake_takes_the_calls_of_the_api(manager: FakeManager) -> None:
    problems = {}
    compared = 0
    for name, method in called_by_the_api():
        fake = getattr(_part(manager, name), method, None)
        if fake is None:
            continue  # no client test requests it

        compared += 1
        found = _differences(
            getattr(class_of(STORE, name), method), getattr(type(fake.__self__), method)
        )
        if found:
            problems[f"{name}.{method}"] = found

    assert not problems
    assert compared > 50
