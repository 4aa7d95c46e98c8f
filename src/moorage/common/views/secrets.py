"""REST models for stored secrets. No response contains a value."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from moorage.common.model.spec import Model
from moorage.common.model.spec_fields import most_bytes


class SecretSpec(Model):
    """The body of ``PUT /v1/secrets/{name}``."""

    EXAMPLE: ClassVar = {"value": "hf_..."}

    value: Annotated[str, most_bytes(65_536)] = Field(
        min_length=1,
        pattern=r"^[^\x00]*$",
        repr=False,
        description="Value of the secret, which is never shown again.",
    )


class SecretView(BaseModel):
    """A stored secret without its value."""

    model_config = ConfigDict(frozen=True)

    name: str
    project: str
    version: int = Field(description="Grows each time the secret is set.")
    created_at: datetime
    created_by: str
    changed_at: datetime
    changed_by: str
