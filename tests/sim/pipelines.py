"""Pipelines and templates in the deterministic simulation: users submit, retry and stop them at
random."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from moorage.agent.runtimes.simulated import KernelScript
from moorage.common.model.pipelines import PipelineSpec, Step, StepState
from moorage.common.model.spec import SessionSpec
from moorage.common.model.templates import TemplateSpec
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from moorage.manager.workloads import pipelines, templates
from moorage.manager.workloads.pipeline_steps import NewStep, PipelineState

from .database import Postgres
from .manager import ManagerProcess
from .node import Violation
from .pipeline_truth import PipelineTruth, replay

USER = Scope.system("user")


class Pipelines:
    """``pipeline_rng``: set in seeds that have pipelines. ``versions``: the templates as
    confirmed."""

    pipeline_rng: random.Random | None
    restore_rng: random.Random | None
    postgres: Postgres
    acknowledged: set[str]
    pipelines: list[str]
    versions: dict[str, TemplateSpec]

    def choose_manager(self, rng: random.Random | None = None) -> ManagerProcess:
        raise NotImplementedError

    async def operate(self, manager: ManagerProcess, label: str, work: Callable[[], Any]) -> Any:
        raise NotImplementedError

    async def act_on_pipelines(self) -> None:
        rng = self.pipeline_rng
        assert rng is not None
        manager = self.choose_manager(rng)
        if rng.random() < 0.2:
            await self._act_on_templates(manager, rng)
        elif not self.pipelines or rng.random() < 0.3:
            await self._submit(manager, rng)
        elif rng.random() < 0.9:
            await self._retry(manager, rng, rng.choice(self.pipelines))
        else:
            name = rng.choice(self.pipelines)
            await self.operate(manager, f"stop pipeline {name}", lambda: _stop(manager, name))

    async def retry_pipelines(self) -> None:
        for name in self.pipelines:
            assert self.pipeline_rng is not None
            await self._retry(self.choose_manager(self.pipeline_rng), self.pipeline_rng, name)

    async def _retry(self, manager: ManagerProcess, rng: random.Random, name: str) -> None:
        specs = [_draw_spec(rng) for _ in range(4)]
        await self.operate(
            manager,
            f"retry {name}",
            lambda: _retry(manager, name, specs, lambda: self._act_meanwhile(rng)),
        )

    async def _act_meanwhile(self, rng: random.Random) -> None:
        """Called between the decision about a retry and its write."""
        if rng.random() < 0.5:
            manager = self.choose_manager(rng)
            if manager.leader.term is None:
                await self.operate(manager, "leader meanwhile", manager.leader.run_once)
            name = rng.choice(["sessions", "scheduler"])
            await self.operate(manager, f"{name} meanwhile", getattr(manager, name).run_once)

    async def _submit(self, manager: ManagerProcess, rng: random.Random) -> None:
        name = f"pipeline{len(self.pipelines)}"
        made = _draw_pipeline(rng, name)
        self.pipelines.append(name)
        shape = {
            s.name: (s.array, [(a.step, a.on) for a in s.after]) for s in pipelines.check(made)
        }
        done = await self.operate(
            manager, f"submit {name}: {shape}", lambda: submit(manager.store, made)
        )
        if done is not None:
            self.acknowledged |= {row.session_id for row in done.steps}

    async def _act_on_templates(self, manager: ManagerProcess, rng: random.Random) -> None:
        script = KernelScript(run_s=rng.choice([0, 3, 20]))
        made = TemplateSpec.model_validate(
            {
                "parameters": {"cpu": {"type": "integer", "default": 1}},
                "spec": {
                    "command": _command(script),
                    "resources": {"cpu": "{{ cpu }}"},
                    "start_timeout_s": 20,
                },
            }
        )
        if rng.random() < 0.6:
            view = await self.operate(
                manager,
                "put template",
                lambda: manager.store.templates.put(USER, "t", made, [], for_all=False),
            )
            if view is not None:
                self.versions[view.ref] = view.template

            return

        cpu = rng.choice([1, 2])
        view = await self.operate(
            manager, f"start template with {cpu} cpu", lambda: _start(manager, cpu)
        )
        if view is not None:
            self.acknowledged.add(view.id)

    async def check_pipelines(self) -> dict[str, PipelineTruth]:
        """Steps start, are skipped and run again as the pipeline specifies."""
        rows = await self.postgres.fetch("SELECT id::text, spec FROM pipelines")
        found = {row["id"]: PipelineSpec.model_validate(row["spec"]) for row in rows}
        return replay(found, await self.postgres.fetch("SELECT * FROM sim.steps ORDER BY n"))

    async def check_pipelines_ended(self) -> None:
        """After the faults, no step waits for something that cannot happen, unless it is supposed
        to."""
        patient = await self.postgres.fetch(
            "SELECT id::text FROM sessions WHERE spec ->> 'dependency_failed' = 'wait'"
        )
        may_wait = {row["id"] for row in patient}
        for truth in (await self.check_pipelines()).values():
            for item, session_id in truth.waiting_in_vain():
                if session_id not in may_wait:
                    raise Violation(f"{truth.name}: {item} waits, and a condition has failed")

    async def check_templates(self) -> None:
        """Template versions are numbered without gaps and never change, and sessions match their
        version."""
        rows = await self.postgres.fetch(
            "SELECT name, version, body FROM templates ORDER BY version"
        )
        stored = {
            f"{r['name']}@{r['version']}": TemplateSpec.model_validate_json(r["body"]) for r in rows
        }
        if [row["version"] for row in rows] != list(range(1, len(rows) + 1)):
            raise Violation(f"templates have the versions {list(stored)}")

        if self.restore_rng is None and (
            changed := [ref for ref, body in self.versions.items() if stored.get(ref) != body]
        ):
            raise Violation(f"templates are gone or have changed: {changed}")

        for row in await self.postgres.fetch(
            "SELECT name, template, spec -> 'command' AS command FROM sessions WHERE template IS NOT NULL"
        ):
            made = templates.session_fields(stored[row["template"]], {})
            if made["command"] != row["command"]:
                raise Violation(f"session {row['name']} is not what {row['template']} makes")


async def submit(store: Store, made: PipelineSpec) -> PipelineState:
    """As ``POST /v1/pipelines``."""
    steps = pipelines.check(made)
    named = {step.name: step for step in steps}
    new = [
        _new_step(node, position, 1, named[node.item[0]])
        for position, node in enumerate(pipelines.graph(steps))
    ]
    return await store.pipelines.create(USER, made, new)


async def _retry(
    manager: ManagerProcess,
    name: str,
    drawn: list[SessionSpec],
    meanwhile: Callable[[], Awaitable[None]],
) -> None:
    """Like ``POST /v1/pipelines/{ref}/retry``; programs may end differently in the new run."""
    store = manager.store.pipelines
    found = await store.get(USER, name)
    rows = {(row.step, row.index): row for row in await store.steps(found.id)}
    states = {
        i: pipelines.step_state(row.status, row.result, row.reason) for i, row in rows.items()
    }
    steps = pipelines.check(found.spec)
    again = pipelines.to_rerun(steps, states)
    if StepState.RUNNING in states.values() or not again:
        return

    pending = {item for item, state in states.items() if state is StepState.PENDING}
    nodes = pipelines.graph(steps)
    named = {step.name: step for step in steps}
    new = [
        _new_step(
            node,
            position,
            rows[node.item].run + 1,
            named[node.item[0]],
            spec=drawn[position % len(drawn)],
        )
        for position, node in enumerate(nodes)
        if node.item in again
    ]
    known = {row.position: str(row.session_id) for row in rows.values()}
    kept = [str(rows[item].session_id) for item in pending]
    await meanwhile()
    await store.add_runs(USER, found, new, known, pending=kept)


async def _stop(manager: ManagerProcess, name: str) -> None:
    found = await manager.store.pipelines.get(USER, name)
    for row in reversed(await manager.store.pipelines.steps(found.id)):
        await manager.terminator.stop(USER, row.session_id)


async def _start(manager: ManagerProcess, cpu: int) -> Any:
    found = await manager.store.templates.get(USER, "t")
    fields = templates.session_fields(found.template, {"cpu": cpu})
    return await manager.store.sessions.create(
        USER, templates.validated(fields), template=found.ref
    )


def _new_step(
    node: pipelines.PipelineNode,
    position: int,
    run: int,
    step: Step,
    *,
    spec: SessionSpec | None = None,
) -> NewStep:
    name, index = node.item
    chosen = spec or step.spec
    assert chosen is not None
    return NewStep(
        name,
        index,
        run=run,
        position=position,
        spec=pipelines.with_index(chosen, step, index),
        template=None,
        waits=node.waits,
        at_once=node.at_once,
    )


def _draw_pipeline(rng: random.Random, name: str) -> PipelineSpec:
    steps = [
        {
            "name": f"step{n}",
            "after": [
                {"step": f"step{m}", "on": rng.choice(["success", "success", "failure", "any"])}
                for m in range(n)
                if rng.random() < 0.6
            ],
            "array": rng.choice([None, None, "0-2%1", "1,3-5,8%2"]),
            "spec": _draw_spec(rng),
        }
        for n in range(rng.choice([2, 3, 4]))
    ]
    return PipelineSpec.model_validate({"name": name, "steps": rng.sample(steps, len(steps))})


def _draw_spec(rng: random.Random) -> SessionSpec:
    script = KernelScript(run_s=rng.choice([0, 0, 0, 20]), exit_code=rng.choice([0, 0, 1]))
    return SessionSpec(
        type="batch", command=_command(script), start_timeout_s=20, stop_grace_s=5, max_attempts=2,
        resources={"cpu": rng.choice([1, 1, 6])}, dependency_failed=rng.choice(["end", "end", "wait"]),
    )  # fmt: skip


def _command(script: KernelScript) -> list[str]:
    return ["script", json.dumps(asdict(script))]
