"""REST model for the audit log: administrative writes, with their actors and changes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from moorage.common.views.resources import View


class AuditEntry(View):
    id: int
    at: datetime
    actor: str = Field(description="Actor, such as key:NAME or user:NAME.")
    user: str
    project: str
    from_address: str = Field(description="Address that the request came from.")
    request_id: str
    action: str = Field(description="Operation, by its operationId in /openapi.json.")
    resource: str = Field(description="Kind of the resource, such as groups.")
    name: str = Field(description="Name of the resource, or of the created one; empty if none.")
    status: int | None = Field(
        description="Status of the response; null if the outcome is unknown."
    )
    code: str = Field(default="", description="Error code, if the write was refused.")
    before: dict[str, Any] | None = Field(
        default=None, description="The resource before the write; null if there was none."
    )
    after: dict[str, Any] | None = Field(
        default=None, description="The response to the write, without secrets."
    )
