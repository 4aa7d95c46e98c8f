"""Manifests: YAML documents that describe resource groups, quotas, projects and templates, for
``apply`` and ``plan``.

A document is complete: an omitted field gets its default. Everything is validated before anything
is written. ``manifest_of`` is the inverse of ``apply``: applying its result changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, Field, ValidationError

from moorage.cli.output import takes_unicode
from moorage.common.model.base import Model, Name
from moorage.common.model.errors import InvalidInput
from moorage.common.model.group_options import GroupOptions, QuotaLimits, QuotaScope
from moorage.common.model.pipelines import PipelineSpec
from moorage.common.model.slots import format_amount
from moorage.common.model.templates import TemplateSpec
from moorage.common.views.identity import ProjectPatch, ProjectSpec, ProjectView
from moorage.common.views.resources import GroupView, NewGroup, QuotaView
from moorage.common.views.templates import TemplateView
from moorage.sdk import ApiError

if TYPE_CHECKING:
    from moorage.sdk import Client

Outcome = Literal["created", "changed", "unchanged", "conflict"]
MAX_BYTES = 16 << 20  # a pipeline has 10,000 steps at most
PIPELINE = "pipeline"


class _Document(Model):
    """One YAML document. A quota's ``name`` is SCOPE/NAME. ``for_all`` applies to templates."""

    kind: Literal["resource-group", "quota", "project", "template"]
    name: Name
    for_all: bool = False
    spec: dict[str, Any] = Field({})


class _Project(ProjectPatch):
    """All fields of a project except its name."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A validated document. ``spec``: its fields in the form in which they are compared and
    sent."""

    kind: str
    name: str
    spec: BaseModel
    for_all: bool = False

    @property
    def title(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Planned:
    """A manifest and the current object. ``before``: the object's fields, None if it does not
    exist. ``version``: its ETag."""

    manifest: Manifest
    before: dict[str, Any] | None
    version: int | None = None

    @property
    def changes(self) -> list[str]:
        """One line per field that would change: ``+`` new, ``-`` removed, ``~`` changed."""
        return list(_differences(self.before or {}, _plain(self.manifest.spec)))

    @property
    def outcome(self) -> Outcome:
        """The action that ``apply`` takes, unless the object changes in between."""
        return "created" if self.before is None else "changed" if self.changes else "unchanged"


def documents(text: str) -> list[Any]:
    """The YAML documents of a file, at least one. Raises ``InvalidInput``."""
    import yaml

    from moorage.cli import yaml_input

    if len(text.encode()) > MAX_BYTES:
        raise InvalidInput(f"the file is larger than {MAX_BYTES >> 20} MiB", next_step="split it")

    try:
        found = [document for document in yaml_input.load_all(text) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"the file is not YAML: {error}", next_step="correct it at that position"
        ) from None

    if not found:
        raise InvalidInput(
            "the file has no documents", next_step="each has `kind`, `name` and `spec`"
        )

    return found


def parse(text: str) -> list[Manifest]:
    """The manifests in a file, without its pipelines. Raises ``InvalidInput``, which names every
    invalid document."""
    found = []
    problems = []
    for number, document in enumerate(documents(text), 1):
        try:
            if isinstance(document, dict) and document.get("kind") == PIPELINE:
                PipelineSpec.model_validate(document)
            else:
                found.append(_manifest(document))
        except (ValidationError, InvalidInput) as error:
            problems.append(f"document {number}: {_message(error)}")

    titles = [manifest.title for manifest in found]
    problems += [
        f"{title} occurs twice" for title in sorted({t for t in titles if titles.count(t) > 1})
    ]
    if problems:
        raise InvalidInput("; ".join(problems), next_step="correct the file; nothing was written")

    return found


def pipelines(text: str) -> list[PipelineSpec]:
    """The pipelines in a file that ``parse`` has accepted."""
    return [
        PipelineSpec.model_validate(d)
        for d in documents(text)
        if isinstance(d, dict) and d["kind"] == PIPELINE
    ]


def _manifest(given: Any) -> Manifest:
    document = _Document.model_validate(given)
    if document.for_all and document.kind != "template":
        raise InvalidInput(f"`for_all` is for templates, not for a {document.kind}")

    if document.kind == "quota" and document.name.partition("/")[0] not in (
        "user",
        "project",
        "group",
    ):
        raise InvalidInput(f"name {document.name!r}: write user/NAME, project/NAME or group/NAME")

    spec = _KINDS[document.kind].model.model_validate(document.spec)
    return Manifest(document.kind, document.name, spec, document.for_all)


def _message(error: ValidationError | InvalidInput) -> str:
    if isinstance(error, InvalidInput):
        return error.message
    parts = error.errors(include_url=False)
    return ", ".join(f"{'.'.join(map(str, part['loc'])) or 'it'}: {part['msg']}" for part in parts)


async def read(client: Client, manifests: Sequence[Manifest]) -> list[Planned]:
    """Read the current object of each manifest."""
    return [await _KINDS[manifest.kind].read(client, manifest) for manifest in manifests]


async def apply(client: Client, planned: Sequence[Planned]) -> list[tuple[Manifest, Outcome, str]]:
    """Write the manifests that differ, in the file's order. A conflict does not stop the others.
    Returns each outcome, with the reason for a conflict."""
    outcomes: list[tuple[Manifest, Outcome, str]] = []
    for plan in planned:
        outcome = plan.outcome
        why = ""
        try:
            if outcome != "unchanged":
                await _KINDS[plan.manifest.kind].write(client, plan)
        except ApiError as error:
            if error.status not in (409, 412):
                raise

            outcome = "conflict"
            why = str(error)

        outcomes.append((plan.manifest, outcome, why))

    return outcomes


def render(manifests: Sequence[Manifest]) -> str:
    """The objects as YAML, without fields that have their default values."""
    import yaml

    documents = [
        {"kind": manifest.kind, "name": manifest.name}
        | ({"for_all": True} if manifest.for_all else {})
        | {"spec": manifest.spec.model_dump(mode="json", exclude_defaults=True)}
        for manifest in manifests
    ]
    return cast(str, yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=takes_unicode()))


def manifest_of(view: GroupView | QuotaView | ProjectView | TemplateView) -> Manifest:
    """The manifest that describes an existing object."""
    if isinstance(view, GroupView):
        return Manifest("resource-group", view.name, view.options)

    if isinstance(view, QuotaView):
        slots = {slot: format_amount(slot, amount) for slot, amount in view.slots.items()}
        counts = {"sessions": view.sessions, "pending": view.pending, "node_hours": view.node_hours}
        limits = QuotaLimits.model_validate({"slots": slots, **counts})
        return Manifest("quota", f"{view.scope}/{view.name}", limits)

    if isinstance(view, ProjectView):
        fields = view.model_dump(include=set(ProjectPatch.model_fields))
        return Manifest("project", view.name, _Project.model_validate(fields))

    return Manifest("template", view.name, view.template, not view.project)


def _plain(spec: BaseModel) -> dict[str, Any]:
    """Fields for comparison, including all defaults, with amounts in one notation."""
    from moorage.common.model.slots import parse_amount

    plain = spec.model_dump(mode="json")
    if isinstance(spec, QuotaLimits):
        plain["slots"] = {slot: parse_amount(slot, amount) for slot, amount in spec.slots.items()}
    return plain


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str = ""
) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        old = before.get(name)
        new = after.get(name)
        at = f"{path}{name}"
        if old == new:
            continue

        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{at}.")
        elif old in (None, {}, []):
            yield f"+ {at}: {new!r}"
        elif new in (None, {}, []):
            yield f"- {at}: {old!r}"
        else:
            yield f"~ {at}: {old!r} -> {new!r}"


async def _found(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def _planned(manifest: Manifest, view: Any) -> Planned:
    if view is None:
        return Planned(manifest, None)
    return Planned(manifest, _plain(manifest_of(view).spec), view.version)


async def _read_group(client: Client, manifest: Manifest) -> Planned:
    view: GroupView | None = await _found(client.groups.get(manifest.name))
    if view is None or view.retired_at is not None:
        return Planned(manifest, None)
    return _planned(manifest, view)


async def _write_group(client: Client, plan: Planned) -> None:
    options = cast(GroupOptions, plan.manifest.spec)
    if plan.before is None:
        await client.groups.create(NewGroup(name=plan.manifest.name, options=options))
    else:
        await client.groups.update(plan.manifest.name, options, version=plan.version)


def _quota(manifest: Manifest) -> tuple[QuotaScope, str]:
    scope, _, name = manifest.name.partition("/")
    return cast(QuotaScope, scope), name


async def _read_quota(client: Client, manifest: Manifest) -> Planned:
    return _planned(manifest, await _found(client.quotas.get(*_quota(manifest))))


async def _write_quota(client: Client, plan: Planned) -> None:
    await client.quotas.set(
        *_quota(plan.manifest), cast(QuotaLimits, plan.manifest.spec), version=plan.version
    )


async def _read_project(client: Client, manifest: Manifest) -> Planned:
    return _planned(manifest, await _found(client.projects.get(manifest.name)))


async def _write_project(client: Client, plan: Planned) -> None:
    fields = plan.manifest.spec.model_dump()
    if plan.before is None:
        await client.projects.create(ProjectSpec(name=plan.manifest.name, **fields))
    else:
        await client.projects.update(
            plan.manifest.name, ProjectPatch(**fields), version=plan.version
        )


async def _read_template(client: Client, manifest: Manifest) -> Planned:
    view: TemplateView | None = await _found(client.templates.get(manifest.name))
    same_owner = view is not None and (not view.project) == manifest.for_all
    return _planned(manifest, view if same_owner else None)


async def _write_template(client: Client, plan: Planned) -> None:
    spec = cast(TemplateSpec, plan.manifest.spec)
    await client.templates.put(
        plan.manifest.name, spec, for_all=plan.manifest.for_all, version=plan.version
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    model: type[BaseModel]
    read: Callable[[Client, Manifest], Awaitable[Planned]]
    write: Callable[[Client, Planned], Awaitable[None]]


_KINDS: Mapping[str, _Kind] = {
    "resource-group": _Kind(GroupOptions, _read_group, _write_group),
    "quota": _Kind(QuotaLimits, _read_quota, _write_quota),
    "project": _Kind(_Project, _read_project, _write_project),
    "template": _Kind(TemplateSpec, _read_template, _write_template),
}
