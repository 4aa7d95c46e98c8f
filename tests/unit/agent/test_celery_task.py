"""The command of a session that calls a Celery task."""

from __future__ import annotations

import pytest

from moorage.agent.runtimes.celery.task import CeleryTask, parse_task
from moorage.common.model.errors import InvalidInput


@pytest.mark.parametrize(
    ("command", "task"),
    [
        (["tasks.train"], CeleryTask("tasks.train", [], {}, "celery")),
        (
            ["tasks.train", "--args", '[1, "two"]', "--kwargs", '{"epochs": 3}', "--queue", "gpu"],
            CeleryTask("tasks.train", [1, "two"], {"epochs": 3}, "gpu"),
        ),
        (
            ["train", "--args=[]", "--queue=low.priority"],
            CeleryTask("train", [], {}, "low.priority"),
        ),
        (["a-b:c", '--kwargs={"a=b": "c=d"}'], CeleryTask("a-b:c", [], {"a=b": "c=d"}, "celery")),
    ],
)
def test_command_is_that_of_celery_call(command: list[str], task: CeleryTask) -> None:
    assert parse_task(command) == task


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ([], "'' is not the name of a task"),
        (["tasks add"], "'tasks add' is not the name of a task"),
        (["--args"], "'--args' is not the name of a task"),
        (["t", "1"], "'1' is not an option"),
        (["t", "--countdown", "3"], "'--countdown' is not an option"),
        (["t", "--args"], "--args has no value"),
        (["t", "--args", "[1"], "--args '[1' is not JSON"),
        (["t", "--args", "{}"], "--args '{}' is not a list"),
        (["t", "--kwargs", "[]"], "--kwargs '[]' is not an object"),
        (["t", "--args=[]", "--args=[]"], "--args is given twice"),
        (["t", "--queue", "a b"], "--queue 'a b' is not the name of a queue"),
    ],
)
def test_wrong_command_is_named(command: list[str], problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_task(command)
    assert problem in caught.value.message
    assert "--args '[1, 2]'" in caught.value.next_step
