"""The site on a phone: no page scrolls sideways. Needs a Chromium on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[2]
PHONE = {"width": 360, "height": 720}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built; WHERECAST_SITE names one that is there already."""
    if given := os.environ.get("WHERECAST_SITE"):
        return Path(given)
    folder = tmp_path_factory.mktemp("site")
    command = [Path(sys.executable).parent / "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


def test_every_block_of_code_is_one(site: Path) -> None:
    """No fence is left over on a page: what stands between two is code, and the rest is text."""
    for path in site.rglob("*.html"):
        text = re.sub(r"<script.*?</script>", "", path.read_text("utf-8"), flags=re.DOTALL)
        assert "```" not in text, path


def test_no_page_scrolls_sideways(site: Path, tmp_path: Path) -> None:
    """Every page fits into 360 pixels."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium here; the widths of the pages were not measured")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=PHONE)  # type: ignore[arg-type]
        ruler = tmp_path / "wide.html"
        ruler.write_text("<article><p style='width: 900px'>too wide</p></article>")
        assert overflow(page, ruler)
        wide = {path.relative_to(site).as_posix(): overflow(page, path) for path in sorted(site.rglob("*.html"))}
        browser.close()
    assert len(wide) > 50
    assert not {name: found for name, found in wide.items() if found}


def overflow(page: Page, path: Path) -> list[str]:
    """What reaches beyond the right edge of a page that scrolls sideways."""
    page.goto(path.as_uri(), wait_until="domcontentloaded")
    found: list[str] = page.evaluate(
        """() => {
            const width = document.documentElement.clientWidth
            if (document.documentElement.scrollWidth <= width) return []
            return [...document.querySelectorAll('article *')].filter(e => e.getBoundingClientRect().right > width)
                .slice(0, 3).map(e => e.outerHTML.slice(0, 120))
        }"""
    )
    return found
