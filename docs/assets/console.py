"""Draw the pictures of docs/guides/console.md: the live feed of the demo, light and dark. Needs Chromium; takes a minute."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.servers.chromium import MISSING, find_chromium

HERE = Path(__file__).parent
#: The rally has begun, the webhook is out of order.
SECONDS = 24


def main() -> None:
    """Write console-light.png and console-dark.png."""
    path = find_chromium()
    if path is None:
        raise SystemExit(MISSING)
    command = [sys.executable, "-m", "wherecast.broker.demo", "--port", "0"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        assert demo.stdout is not None
        link = next(found.group() for line in demo.stdout if (found := re.search(r"http://\S+#once=\S+", line)))
        time.sleep(SECONDS)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1180, "height": 720})
            page.goto(link)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # nothing is half faded in
                page.locator(".event").first.wait_for()
                page.wait_for_timeout(3_000)
                page.screenshot(path=HERE / f"console-{scheme}.png")
            browser.close()
    finally:
        demo.terminate()
        demo.wait()


if __name__ == "__main__":
    main()
