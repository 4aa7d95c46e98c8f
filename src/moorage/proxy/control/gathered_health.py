"""Health and metrics of all workers of a proxy, gathered on one address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import aiohttp
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from moorage.common.views.resources import Health

TEXT = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
# Gauges of age or completeness, for which the worst worker's value is used.
_LEAST = frozenset(
    {"moorage_proxy_feed_connected", "moorage_proxy_table_generation", "process_start_time_seconds"}
)
_MOST = frozenset(
    {
        "moorage_proxy_credentials_age_seconds",
        "moorage_proxy_table_age_seconds",
        "moorage_build_info",
    }
)
_TIMEOUT = aiohttp.ClientTimeout(total=5.0)

Labels = tuple[tuple[str, str], ...]


def merged_metrics(texts: Iterable[str], departed: str = "") -> str:
    """Merge several expositions: counters, histograms and most gauges are added. ``departed`` is
    from workers that have ended; only their counters and histograms are included."""
    heads: dict[str, tuple[str, str]] = {}
    values: dict[str, dict[tuple[str, Labels], float]] = {}
    for text, is_live in (*((text, True) for text in texts), (departed, False)):
        for family in text_string_to_metric_families(text):
            counts = family.type in ("counter", "histogram")
            if family.name.endswith("_created") or not (is_live or counts):
                continue

            heads.setdefault(family.name, (family.documentation, family.type))
            known = values.setdefault(family.name, {})
            for sample in family.samples:
                key = sample.name, tuple(sample.labels.items())
                before = known.get(key)
                if before is None:
                    known[key] = sample.value
                elif family.name in _LEAST:
                    known[key] = min(before, sample.value)
                elif family.name in _MOST:
                    known[key] = max(before, sample.value)
                else:
                    known[key] = before + sample.value

    lines = []
    for name, (documentation, kind) in heads.items():
        shown = f"{name}_total" if kind == "counter" else name
        lines += [f"# HELP {shown} {documentation}", f"# TYPE {shown} {kind}"]
        for (series, labels), value in values[name].items():
            inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
            lines.append(f"{series}{{{inner}}} {value}" if inner else f"{series} {value}")

    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class GatheredHealth:
    """The gathered health. ``workers``: the addresses of the workers' own health checks, by number.
    ``wanted``: the intended number of workers. ``departed``: the counts of workers that have
    ended."""

    def __init__(self, workers: Callable[[], Mapping[int, tuple[str, int]]], wanted: int) -> None:
        self._workers = workers
        self._wanted = wanted
        self.departed = ""

    def add_departed(self, metrics: str) -> None:
        """Keep the counts of a worker that has ended, whose last metrics are given."""
        self.departed = merged_metrics((), merged_metrics([self.departed, metrics]))

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
            ]
        )
        return app

    async def _livez(self, request: web.Request) -> web.Response:
        return _health(Health(status="ok"), 200)

    async def _readyz(self, request: web.Request) -> web.Response:
        """Ready while any worker is ready; degraded while any is missing or not ready."""
        answers = await self._ask("/readyz")
        found = [Health.model_validate_json(text) for text in answers.values()]
        checks = {
            f"worker {number}: {name}": text
            for number, health in zip(answers, found, strict=True)
            for name, text in (health.checks or {}).items()
        }
        good = [health for health in found if health.status == "ok"]
        served = [health for health in found if health.status in ("ok", "degraded")]
        status = "unavailable" if not served else "ok" if len(good) >= self._wanted else "degraded"

        return _health(Health(status=status, checks=checks), 200 if served else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        answers = await self._ask("/metrics")
        return web.Response(text=merged_metrics(answers.values(), self.departed), headers=TEXT)

    async def _ask(self, path: str) -> dict[int, str]:
        """The answers from those workers that respond."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:

            async def ask(host: str, port: int) -> str | None:
                try:
                    async with session.get(f"http://{host}:{port}{path}") as response:
                        return await response.text()
                except (aiohttp.ClientError, TimeoutError):
                    return None

            workers = dict(self._workers())
            answers = await asyncio.gather(*(ask(*address) for address in workers.values()))

        return {n: text for n, text in zip(workers, answers, strict=True) if text is not None}


def _health(health: Health, status: int) -> web.Response:
    return web.Response(
        status=status, text=health.model_dump_json(), content_type="application/json"
    )
