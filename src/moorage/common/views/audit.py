"""REST model of the audit log: administrative writes, with their actors and what they changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from moorage.common.views.resources import View


class AuditEntry(View):
    id: int
    at: datetime
    actor: str = Field(description="Such as key:NAME or user:NAME.")
    user: str
    project: str
    from_address: str = Field(description="Address from which the request came.")
    request_id: str
    action: str = Field(description="The operation, as operationId in /openapi.json has it.")
    resource: str = Field(description="Kind of the resource, such as groups.")
    name: str = Field(description="Its name, or that of what was created; empty: none.")
    status: int | None = Field(description="Status of the answer; null: the outcome is not known.")
    code: str = Field(default="", description="Code of the error with which it was refused.")
    before: dict[str, Any] | None = Field(
        default=None, description="The resource before the write; null: none."
    )
    after: dict[str, Any] | None = Field(
        default=None, description="The answer to the write, without secrets."
    )
