"""A real headless Chromium, driven by selenium, for the tests of what the report writes."""

import shutil
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1280,900"
).split()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """The browser; skipped with a warning where the machine has none."""
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        _skip(f"the page is not tried in a browser: no {'chromedriver' if chromium else 'Chromium'} on this machine")
    try:
        from selenium import webdriver
    except ImportError:
        _skip("the page is not tried in a browser: selenium is not installed (pip install selenium)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()


def open_page(browser: Any, page: Path) -> None:
    """Open a page from disk, with a log of its own."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(page.as_uri())


def wait_for(browser: Any, script: str, *arguments: Any, seconds: float = 20) -> Any:
    """Wait until the script returns something true, and return that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := browser.execute_script(script, *arguments):
            return value
        time.sleep(0.03)
    raise AssertionError(f"never became true: {script}")


def loaded_files(browser: Any) -> list[str]:
    """What the page loaded beside itself, without what stands in it as data."""
    names = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    return [name for name in names if not name.startswith("data:")]


def _skip(reason: str) -> None:
    warnings.warn(reason, stacklevel=2)
    pytest.skip(reason)
