"""Rows of the route table about pipelines."""

from __future__ import annotations

from moorage.common.model.pipelines import MAX_BYTES, MAX_VALUES, PipelineSpec
from moorage.common.views.pipelines import PipelineView, PlannedPipeline
from moorage.common.views.resources import Page
from moorage.manager.api import pipelines
from moorage.manager.api.route import Route, route

_PIPELINE = "/v1/pipelines/{ref:.+}"

PIPELINE_ROUTES: tuple[Route, ...] = (
    route(
        "GET",
        "/v1/pipelines",
        pipelines.list_pipelines,
        "List pipelines, newest first, without their steps",
        Page[PipelineView],
        query=pipelines.PipelineQuery,
        access="viewer",
    ),
    route(
        "POST",
        "/v1/pipelines",
        pipelines.submit,
        "Submit a pipeline: all of its sessions are created, or none",
        PipelineView,
        body=PipelineSpec,
        query=pipelines.SubmitQuery,
        status=201,
        location="/v1/pipelines/{id}",
        dry_run=PlannedPipeline,
        idempotent=True,
        max_body_bytes=MAX_BYTES,
        max_body_values=MAX_VALUES,
        access="member",
    ),
    route(
        "POST",
        f"{_PIPELINE}/stop",
        pipelines.stop_pipeline,
        "Stop all steps of a pipeline that have not ended",
        PipelineView,
        status=202,
        access="owner",
    ),
    route(
        "POST",
        f"{_PIPELINE}/retry",
        pipelines.retry_pipeline,
        "Run the failed and stopped steps of a pipeline again, and what ended after them",
        PipelineView,
        status=202,
        access="owner",
    ),
    route(
        "GET",
        f"{_PIPELINE}/graph.svg",
        pipelines.draw_pipeline,
        "Draw the graph of a pipeline, with the state of each step",
        "image/svg+xml",
        access="viewer",
    ),
    route(
        "GET",
        _PIPELINE,
        pipelines.get_pipeline,
        "Get a pipeline with the state of each step",
        PipelineView,
        access="viewer",
    ),
)
