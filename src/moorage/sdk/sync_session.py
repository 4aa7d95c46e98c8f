"""Session to run code in, without asyncio."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from moorage.sdk.client import Client
from moorage.sdk.code import Execution


class SyncSession:
    """A session to run code in, without asyncio: ``with SyncSession(url, key, "dev") as
    session``."""

    def __init__(self, url: str, key: str, ref: str, **options: Any) -> None:
        self._url = url
        self._key = key
        self.ref = ref
        self._options = options
        self._runner = asyncio.Runner()
        self._client: Client | None = None

    def __enter__(self) -> Self:
        self._client = Client(self._url, self._key, **self._options)
        self._runner.run(self._client.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._client is not None
        self._runner.run(self._client.__aexit__(kind, error, trace))
        self._runner.close()

    def execute(self, code: str = "", **options: Any) -> Execution:
        """As ``Session.execute``."""
        assert self._client is not None, "use it within `with SyncSession(...) as session`"
        return self._runner.run(self._client.session(self.ref).execute(code, **options))
