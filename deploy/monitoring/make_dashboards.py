"""Generator of the Grafana dashboards, from ``dashboards.yaml``.

python deploy/monitoring/make_dashboards.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.builders.common import VizLegendOptions
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as TimeSeries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

FOLDER = Path(__file__).parent / "dashboards"
DASHBOARDS: dict[str, Any] = yaml.safe_load(FOLDER.with_suffix(".yaml").read_text())
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")


def dashboard(name: str) -> str:
    """A dashboard's JSON, in the form that Grafana imports."""
    described = DASHBOARDS[name]
    label = described["choice"]["label"]
    metric = described["choice"]["metric"]
    choice = QueryVariable(label).query(f"label_values({metric}, {label})").datasource(_SOURCE)
    choice = (
        choice.multi(True)
        .include_all(True)
        .all_value(".*")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    )
    made = Dashboard(described["title"]).uid(f"moorage-{name}").tags(["moorage"]).readonly()
    made = made.refresh("30s").time("now-6h", "now")
    made = made.with_variable(DatasourceVariable("datasource").type("prometheus")).with_variable(
        choice
    )
    for row, panels in described["rows"].items():
        made = made.with_row(Row(row))
        for panel in panels:
            made = made.with_panel(_panel(panel))

    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def _panel(described: dict[str, Any]) -> Stat | TimeSeries:
    panel: Stat | TimeSeries
    if described.get("stat"):
        panel = Stat().height(4).span(4)
    else:
        legend = VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.LIST)
        panel = TimeSeries().height(8).span(8).fill_opacity(8).min(0)
        panel = panel.legend(legend.placement(LegendPlacement.BOTTOM))

    panel = panel.title(described["title"]).unit(described["unit"]).datasource(_SOURCE)
    for letter, (legend_text, expression) in zip(
        "ABCDEF", described["queries"].items(), strict=False
    ):
        panel = panel.with_target(
            Dataquery().expr(expression).legend_format(legend_text).ref_id(letter)
        )

    return panel


def queries() -> Iterator[tuple[str, str, str]]:
    """The dashboard, the panel's title, and each of its expressions."""
    for name, described in DASHBOARDS.items():
        for panels in described["rows"].values():
            for panel in panels:
                for expression in panel["queries"].values():
                    yield name, panel["title"], expression


if __name__ == "__main__":
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(dashboard(name))
