"""The web console in a real Chromium, for the scripts that drive it: sign-in and errors."""

from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect
from playwright.sync_api import TimeoutError as LimitReached

CHROMIUM = "/usr/bin/chromium"
SECONDS = 1000  # playwright expects milliseconds
# The limit of each wait for a condition: on a busy machine a page can take this long.
LIMIT = 60 * SECONDS
expect.set_options(timeout=LIMIT)
WIDTHS = {"wide": (1280, 800), "narrow": (360, 780)}
WATCH = """addEventListener('securitypolicyviolation',
  (event) => console.error('security policy', event.violatedDirective, event.blockedURI))"""


class Console:
    """A signed-in browser and the errors that it saw."""

    def __init__(self, browser: Browser, url: str, key: str, pictures: Path) -> None:
        self.browser = browser
        self.url = url
        self.key = key
        self.pictures = pictures
        self.complaints: list[str] = []
        self.axe: list[str] = []

    def open(self, scheme: str = "light", width: str = "wide") -> Page:
        size = WIDTHS[width]
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        context.add_init_script(WATCH)
        page = context.new_page()
        page.set_default_timeout(LIMIT)
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

        return page

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} {message.location['url']}")

    def sign_in(self, page: Page) -> None:
        page.goto(f"{self.url}/console/")
        try:
            page.get_by_role("heading", name="Sign in").wait_for()
        except LimitReached as error:
            shown = page.locator("body").inner_text(timeout=5_000)
            raise AssertionError(
                f"no sign-in page, but {shown!r}; complaints: {self.complaints}"
            ) from error

        self.check(page, "sign-in")
        self.complaints.clear()  # the answer to "Who am I?" is 401 before sign-in
        page.locator("input[type=password]").fill(self.key)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()

    def check(self, page: Page, name: str) -> None:
        """Serious axe findings, and anything wider than the screen."""
        for found in Axe().run(page).response["violations"]:
            if found["impact"] in ("serious", "critical"):
                self.axe.append(f"{name}: {found['id']}: {found['nodes'][0]['html'][:200]}")
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            self.complaints.append(f"{name} is wider than the screen")

    def go(self, page: Page, path: str, heading: str) -> None:
        """Open a page as if for the first time: forms have no draft."""
        page.evaluate("try { sessionStorage.clear() } catch {}")
        page.goto(f"{self.url}/console/{path}")
        expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()

    def go_without(self, page: Page, path: str, problem: str) -> None:
        """Open a page that does not exist: it says so."""
        page.goto(f"{self.url}/console/{path}")
        expect(page.get_by_role("alert")).to_contain_text(problem)
        self.complaints.clear()  # the refusal is a 404


def confirm(page: Page, verb: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=verb, exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
