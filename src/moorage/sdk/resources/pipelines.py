"""Pipelines: sessions that depend on each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

from moorage.common.model.pipelines import PipelineSpec
from moorage.common.views.pipelines import PipelineView, PlannedPipeline
from moorage.sdk.paged_list import PagedList
from moorage.sdk.pipelines import PipelineBuilder
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment

_DRAW_S = 30.0


class Pipelines(Resource):
    """Pipelines: sessions that depend on each other."""

    async def create(
        self,
        pipeline: PipelineSpec,
        *,
        force: bool = False,
        idempotency_key: str | None = None,
    ) -> PipelineView:
        """Create all sessions of a pipeline, or none.

        ``force``: run every step, even if an earlier result could be reused. ``idempotency_key``:
        any unique text, like a UUID, which makes the call safe to repeat."""
        query = {"force": "true" if force else None}
        return await self._call(
            PipelineView,
            "POST",
            "/v1/pipelines",
            query=query,
            body=pipeline,
            idempotency_key=self._client.repeatable(idempotency_key),
        )

    async def plan(self, pipeline: PipelineSpec) -> PlannedPipeline:
        """The steps that the pipeline would have. Creates nothing, but raises the error with which
        it would be refused."""
        return await self._call(PlannedPipeline, "POST", "/v1/pipelines/plan", body=pipeline)

    @asynccontextmanager
    async def build(self, name: str) -> AsyncIterator[PipelineBuilder]:
        """Submit the pipeline built in the block, or nothing if the block raises."""
        builder = PipelineBuilder(name)
        yield builder
        builder.view = await self.create(builder.spec())

    def list(
        self,
        *,
        search: str | None = None,
        user: str | None = None,
        project: str | None = None,
        live: bool = False,
    ) -> PagedList[PipelineView]:
        """List pipelines, newest first, without their steps. ``search``: a part of the name.
        ``live``: only those that have not ended."""
        query = {"search": search, "user": user, "project": project}
        return self._list(PipelineView, "/v1/pipelines", query | {"live": "true" if live else None})

    async def get(self, ref: str, *, steps: bool = True) -> PipelineView:
        """Return a pipeline. ``steps``: False for only its counts, which is fast for any size."""
        query = {"steps": None if steps else "false"}
        return await self._call(PipelineView, "GET", f"/v1/pipelines/{segment(ref)}", query=query)

    async def draw(self, ref: str) -> str:
        """The pipeline's graph as SVG, with the state of each step."""
        path = f"/v1/pipelines/{segment(ref)}/graph.svg"
        picture = b""
        with closing(await self._client.stream(path, {}, {}, begin_s=_DRAW_S)) as answer:
            try:
                while piece := await answer.next_piece():
                    picture += piece
            except OSError as error:
                raise self._client.unreachable(error) from error

        return picture.decode()

    async def stop(self, ref: str) -> PipelineView:
        return await self._call(PipelineView, "POST", f"/v1/pipelines/{segment(ref)}/stop")

    async def retry(self, ref: str) -> PipelineView:
        """Run failed and stopped steps again, and the steps after them that ended."""
        return await self._call(PipelineView, "POST", f"/v1/pipelines/{segment(ref)}/retry")


class SyncPipelines(SyncResource[Pipelines]):
    """``Pipelines`` without asyncio."""

    create = blocking(Pipelines.create)
    plan = blocking(Pipelines.plan)
    list = listed(Pipelines.list)
    get = blocking(Pipelines.get)
    draw = blocking(Pipelines.draw)
    stop = blocking(Pipelines.stop)
    retry = blocking(Pipelines.retry)

    @contextmanager
    def build(self, name: str) -> Iterator[PipelineBuilder]:
        """Submit the pipeline built in the block, or nothing if the block raises."""
        builder = PipelineBuilder(name)
        yield builder
        builder.view = self.create(builder.spec())
