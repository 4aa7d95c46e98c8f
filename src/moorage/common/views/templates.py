"""REST models for session templates."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, PlainSerializer

from moorage.common.model.templates import TemplateSpec
from moorage.common.views.resources import View, masked


def _masked_template(template: TemplateSpec) -> dict[str, object]:
    shown = template.model_dump(mode="json")
    roles = [role for role in (shown["roles"] or {}).values() if role]
    for part in (shown["spec"], *roles):
        part.update(masked(part))
    return shown


class TemplateView(View):
    """A template version, which never changes."""

    name: str
    version: int
    project: str = Field(
        description="The template's project. Empty if it is shared by all projects."
    )
    template: Annotated[TemplateSpec, PlainSerializer(_masked_template)]
    bases: list[str] = Field(description="Versions that it is based on, the nearest first.")
    created_at: datetime
    created_by: str
    isolated: bool = Field(
        default=False,
        description=(
            "The author of the template, or of one of its bases, is not an administrator. Its "
            "sessions therefore run isolated, whoever starts them."
        ),
    )
    warnings: list[str] = Field(default=[], description="Set only in the response to its creation.")

    @property
    def ref(self) -> str:
        return f"{self.name}@{self.version}"
