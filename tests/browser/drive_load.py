"""Opens the pages of an endpoint with traffic and of an agent with load in the web console:
``python drive_load.py URL KEY PICTURES ENDPOINT AGENT``.

Prints what each chart shows, and the errors, as JSON.
"""

import json
import sys
from pathlib import Path

from console_page import CHROMIUM, WIDTHS, Console
from playwright.sync_api import Page, expect, sync_playwright

# Number of pixels in the colour of each line, by its name in the legend.
PIXELS = """chart => {
  const canvas = chart.querySelector('canvas');
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const rows = [...chart.querySelectorAll('.u-legend .u-series')].slice(1);
  return Object.fromEntries(rows.map(row => {
    const colour = getComputedStyle(row.querySelector('.u-marker')).borderTopColor;
    const [r, g, b] = colour.match(/[0-9.]+/g).map(Number);
    let found = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] > 200 && Math.abs(data[i] - r) + Math.abs(data[i + 1] - g)
          + Math.abs(data[i + 2] - b) < 12) found += 1;
    }
    return [row.querySelector('.u-label').textContent, found];
  }));
}"""


def charts(page: Page) -> dict[str, object]:
    """Each chart by its title: labels of its axes, pixels of its lines, and its texts."""
    found = {}
    for figure in page.locator("figure.chart-figure").all():
        chart = figure.locator(".chart")
        described = chart.get_attribute("aria-describedby")
        found[figure.locator("figcaption").inner_text()] = {
            "ticks": (chart.get_attribute("data-ticks") or "").split("|"),
            "times": (chart.get_attribute("data-times") or "").split("|"),
            "pixels": chart.evaluate(PIXELS),
            "summary": page.locator(f'[id="{described}"]').text_content(),
            "at": chart.get_attribute("aria-valuetext"),
        }
    return found


def by_keyboard(page: Page) -> list[str]:
    """What a screen reader reads of the first chart, at its end and one step before."""
    chart = page.locator(".chart").first
    chart.focus()
    page.keyboard.press("End")
    texts = [chart.get_attribute("aria-valuetext") or ""]
    before = chart.get_attribute("aria-valuenow") or ""
    page.keyboard.press("ArrowLeft")
    expect(chart).not_to_have_attribute("aria-valuenow", before)
    return [*texts, chart.get_attribute("aria-valuetext") or ""]


def main(url: str, key: str, pictures: str, endpoint: str, *, agent: str) -> None:
    seen: dict[str, object] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        console = Console(browser, url, key, Path(pictures))
        for scheme in ("light", "dark"):
            for width in WIDTHS:
                page = console.open(scheme, width)
                console.sign_in(page)
                for name, path, heading in (
                    ("endpoint", f"endpoints/{endpoint}", endpoint),
                    ("agent", f"agents/{agent}", agent),
                ):
                    console.go(page, path, heading)
                    expect(page.locator(".u-legend").first).to_be_visible()
                    expect(page.locator("[aria-busy=true]")).to_have_count(0)
                    console.check(page, f"{name} {scheme} {width}")
                    page.screenshot(
                        path=Path(pictures) / f"load-{name}-{scheme}-{width}.png", full_page=True
                    )
                    if (scheme, width) == ("light", "wide"):
                        seen[name] = charts(page)
                        seen[f"{name} by keyboard"] = by_keyboard(page)
                        page.get_by_text("7 days", exact=True).first.click()
                        expect(page.locator("[aria-busy=true]")).to_have_count(0)
                        console.check(page, f"{name} of seven days")

                page.context.close()

        browser.close()

    print(json.dumps(seen | {"axe": console.axe, "complaints": console.complaints}))


if __name__ == "__main__":
    main(*sys.argv[1:5], agent=sys.argv[5])
