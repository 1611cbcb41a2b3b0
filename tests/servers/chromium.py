"""A browser for tests: the Chromium of the machine, driven by Playwright.

Playwright's own browsers are not on PyPI, so none is fetched: Debian and Ubuntu have the package `chromium`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MISSING = "no Chromium: apt install chromium, or name one in WHERECAST_CHROMIUM"


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return os.environ.get("WHERECAST_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """A browser, or the test is skipped with the reason."""
    from playwright.sync_api import sync_playwright

    path = find_chromium()
    if path is None:
        pytest.skip(MISSING)
    # Containers have neither the name spaces of Chromium's sandbox nor much shared memory; the pages are our own.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()
