"""Take the pictures in docs/images: `./dev screenshots`.

Starts a fresh room on free ports, plays `postroom demo`, signs in with Chromium and takes one picture per row of
`SHOTS`. Everything is on loopback and in a temporary folder.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
LARGEST = 150 * 1024  # bytes of a picture; the repository keeps every version of it
POSTROOM = [sys.executable, "-m", "postroom.cli"]
DESKTOP, PHONE = (1280, 860), (390, 844)


@dataclass(frozen=True)
class Shot:
    """A picture: its file, the page by the name that the demo prints or by its path, colours and size."""

    name: str
    page: str
    scheme: str = "light"
    size: tuple[int, int] = DESKTOP


SHOTS = (
    Shot("overview", "/"),
    Shot("delivery", "Ambiguous mail", size=(1280, 690)),
    Shot("campaign", "Campaign", "dark"),
    Shot("statistics", "/statistics?by=domain"),
    Shot("inbox", "/inbox", "dark", (1280, 560)),
    Shot("phone", "/", size=PHONE),
)


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("Chromium is not installed.", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, running_room(Path(folder)) as (url, environment):
        told = subprocess.run([*POSTROOM, "demo"], env=environment, check=True, capture_output=True, text=True).stdout
        print(told)
        pages = dict(re.findall(rf"^  (\S.*?)\s+{re.escape(url)}(/\S*)$", told, re.MULTILINE))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            key = (Path(folder) / "data" / "api-key").read_text().strip()
            too_large = [shot.name for shot in SHOTS if take(browser, shot, url, key, pages) > LARGEST]
            browser.close()
    if too_large:
        print(f"larger than {LARGEST} bytes: {', '.join(too_large)}", file=sys.stderr)
    return 1 if too_large else 0


@contextmanager
def running_room(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A fresh room: its URL, and the environment in which commands find it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
    address = f"127.0.0.1:{free_port()}"
    environment = {
        **kept,
        "PYTHONUNBUFFERED": "1",
        "POSTROOM_DATA_DIR": str(folder / "data"),
        "POSTROOM_HTTP_ADDR": address,
        "POSTROOM_SMTP_ADDR": "127.0.0.1:0",
    }
    up = subprocess.Popen([*POSTROOM, "up"], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert up.stdout is not None
        if not any("Ctrl-C stops." in line for line in up.stdout):
            raise RuntimeError(f"postroom up ended with {up.wait()}")
        yield f"http://{address}", environment
    finally:
        up.send_signal(signal.SIGTERM)
        up.communicate()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def take(browser: Browser, shot: Shot, url: str, key: str, pages: dict[str, str]) -> int:
    """Take one picture; returns its size in bytes."""
    width, height = shot.size
    context = browser.new_context(color_scheme=shot.scheme, viewport={"width": width, "height": height})
    page = context.new_page()
    sign_in(page, url, key)
    answer = page.goto(url + (shot.page if shot.page.startswith("/") else pages[shot.page]))
    assert answer is not None
    assert answer.ok, f"{answer.url} answered {answer.status}"
    if page.query_selector("[data-live-status]"):
        page.wait_for_selector("[data-live-status] >> text=/^Live$/")
    page.wait_for_timeout(1500)  # the live parts are drawn once
    path = IMAGES / f"{shot.name}.png"
    page.screenshot(path=path)
    context.close()
    return path.stat().st_size


def sign_in(page: Page, url: str, key: str) -> None:
    page.goto(f"{url}/sign-in")
    page.fill("input[name=key]", key)
    page.press("input[name=key]", "Enter")
    page.wait_for_load_state("domcontentloaded")


if __name__ == "__main__":
    sys.exit(main())
