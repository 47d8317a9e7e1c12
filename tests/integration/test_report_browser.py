"""The report in a real browser: what it loads, logs and shows, on a phone and on a wide screen, light and dark."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE, WIDE = (360, 740), (1440, 900)
SECONDS = 60.0
MONITOR = "val/stsb/spearman"
POINTS = ("ngcse_wiki_dropout", "ngcse_wiki_sts_ht", "ngcse_nli_sup")
MEASURES = ("alignment", "uniformity")
# The browser talks over descriptors 3 and 4, which are not free here; a small process puts the pipe's ends there.
TRAMPOLINE = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """Headless Chromium, told what to do by the DevTools protocol over a pipe."""

    def __init__(self, program: str, profile: Path) -> None:
        command_read, self._write = os.pipe()
        self._read, reply_write = os.pipe()
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-extensions",
            "--disable-sync",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-E", "-S", "-c", TRAMPOLINE, str(command_read), str(reply_write), program, *options],
            pass_fds=(command_read, reply_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_read)
        os.close(reply_write)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        """End the browser, and wait until it has."""
        os.close(self._write)
        os.close(self._read)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer}"
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._read, 1 << 20)
            assert part, "the browser ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))

    def open(self, path: Path, size: tuple[int, int] = WIDE, *, dark: bool = False) -> None:
        """Open a file in a new tab, and wait until it has loaded."""
        self._session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Network", "Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.show(size, dark=dark)
        self.load("Page.navigate", url=path.as_uri())

    def load(self, method: str, **parameters: Any) -> None:
        """Send a command that loads a page, and wait until it has."""
        self.events.clear()
        self.send(method, **parameters)
        end = time.monotonic() + SECONDS
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            assert time.monotonic() < end, "the page did not load"
            self.events.append(self._next())

    def show(self, size: tuple[int, int], *, dark: bool) -> None:
        """Set the size of the window and the colours that the system prefers."""
        width, height = size
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def value(self, expression: str) -> Any:
        """Return what an expression of JavaScript gives in the page."""
        done = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def screenshot(self, *, whole: bool = False) -> bytes:
        """Return the window, or the whole page, as a PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def complaints(self) -> list[str]:
        """Return what the console was told since the page was opened: errors, warnings, broken rules."""
        self.value("new Promise(resolve => setTimeout(resolve, 50))")
        names = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event) for event in self.events if event["method"] in names]

    def requests(self) -> list[str]:
        """Return the addresses asked for since the page was opened."""
        asked = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in asked]


def find_browser() -> str | None:
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip(f"needs a browser, and none of {', '.join(BROWSERS)} is installed")
    one = Browser(program, tmp_path_factory.mktemp("profile"))
    try:
        yield one
    finally:
        one.close()


def write_run(folder: Path, name: str, seed: int) -> Path:
    """Write a finished run as training leaves it, and return its folder."""
    run = folder / name / f"{name.encode().hex()[:10]}-s{seed}"
    run.mkdir(parents=True)
    shift = POINTS.index(name) / 50 + seed / 500
    config = {"name": name, "monitor": MONITOR, "data": {"rows": 1000 * POINTS.index(name)}}
    record = {
        "name": name,
        "config_hash": run.name.partition("-")[0],
        "seed": seed,
        "overrides": [f"+experiment={name}", f"data.rows={1000 * POINTS.index(name)}", f"seed={seed}"],
        "metrics": {f"test/sts{year}/spearman_all": 0.7 + shift for year in range(12, 17)},
        "baselines": {},
        "best": {"step": 500, "score": 0.8 + shift, "monitor": MONITOR},
        "steps": 1000,
        "seconds": {"training": 100.0, "evaluation": 20.0},
        "device": "cpu",
        "precision": "32-true",
        "encoder": {"name": "tiny"},
        "environment": {"commit": "0" * 40, "machine": {"cpu": "A processor with a rather long name", "cores": 2}},
        "decisive": {"config": config, "data": {}, "encoder": {}},
    }
    (run / "record.json").write_text(json.dumps(record), encoding="utf-8")
    rows = ["step,key,value"]
    for step in range(0, 1001, 125):
        rows += [f"{step},train/loss,{2 - step / 1000}", f"{step},{MONITOR},{0.7 + shift + step / 20000}"]
        rows += [f"{step},diag/{side}/{of},{0.3 + shift}" for side in ("held_out", "eval") for of in MEASURES]
        rows += [f"{step},diag/rfd_{of},{shift - 0.02}" for of in MEASURES if step]
    (run / "curves.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return run


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a paper's table, of which nothing is measured here, and of six runs."""
    from lightning_cse.report import main

    folder = tmp_path_factory.mktemp("report")
    runs = [str(write_run(folder / "sweep", name, seed)) for name in POINTS for seed in (0, 1)]
    target = folder / "report.html"
    none = folder / "no runs"
    assert main(["dualcse/table5", *runs, "--profile", "small", "--runs-dir", str(none), "--to", str(target)]) == 0
    return target


@pytest.mark.parametrize("size", [PHONE, WIDE], ids=["phone", "wide"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_is_loaded_logged_or_cut_off(browser: Browser, page: Path, size: tuple[int, int], dark: bool) -> None:
    browser.open(page, size, dark=dark)
    assert browser.value("innerWidth") == size[0]
    assert browser.value("document.documentElement.scrollWidth") == size[0]
    # Wide tables and charts scroll in their own boxes, and nothing else is wider than the window.
    beyond = """[...document.querySelectorAll("body *")].filter(one => !one.closest(".scroll, .drawing")
        && one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML)"""
    assert browser.value(beyond) == []
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [page.as_uri()]


def test_tables_and_charts_are_there(browser: Browser, page: Path) -> None:
    browser.open(page)
    rows = browser.value("""[...document.querySelectorAll("section")].map(one =>
        [one.id, ...[...one.querySelectorAll("table")].map(table => table.tBodies[0].rows.length)])""")
    assert rows == [
        ["dualcse-table5", 4],
        ["sweep-runs", 3, 6],
        ["sweep-learning"],
        ["sweep-rfd"],
        ["sweep-configs", 1],
    ]
    boxes = browser.value("""[...document.querySelectorAll("svg.figure")].map(one => {
        const {width, height} = one.getBoundingClientRect();
        const text = one.querySelector("text").getBoundingClientRect();
        return [width, height, one.querySelectorAll("path").length, text.height, one.getAttribute("aria-label")];
    })""")
    assert len(boxes) == 2 + 7
    for width, height, paths, text, label in boxes:
        assert width > 300
        assert height > 150
        assert paths > 5
        assert text > 7
        assert label
    assert browser.value(
        "document.querySelectorAll('[id]').length === new Set([...document.querySelectorAll('[id]')]"
        ".map(one => one.id)).size"
    )
    sticky = """(() => {
        const box = document.querySelector("#sweep-runs .scroll"), name = box.querySelector("tbody th");
        const before = name.getBoundingClientRect().left;
        box.scrollLeft = 200;
        return [box.scrollLeft, before - name.getBoundingClientRect().left];
    })()"""
    browser.show(PHONE, dark=False)
    scrolled, moved = browser.value(sticky)
    assert scrolled == 200
    assert abs(moved) < 1


def test_light_and_dark_differ_and_the_button_chooses(browser: Browser, page: Path) -> None:
    look = """(() => { const of = (one, key) => getComputedStyle(document.querySelector(one))[key];
        return [of("body", "backgroundColor"), of("body", "color"), of("svg.figure text", "fill"),
                of("[data-series] path", "stroke")]; })()"""
    browser.open(page)
    browser.value("localStorage.clear()")
    browser.open(page)
    light = browser.value(look)
    light_picture = browser.screenshot()
    browser.show(WIDE, dark=True)
    dark = browser.value(look)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    assert browser.screenshot() != light_picture
    for now, then in (("Theme: light", light), ("Theme: dark", dark), ("Theme: system", dark)):
        browser.value("document.getElementById('theme').click()")
        assert browser.value("document.getElementById('theme').textContent") == now
        assert browser.value(look) == then
    browser.show(WIDE, dark=False)
    assert browser.value(look) == light
    # Where a browser keeps nothing for files, the button works all the same.
    broken = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError'); }})"
    browser.send("Page.addScriptToEvaluateOnNewDocument", source=broken)
    browser.load("Page.reload")
    assert browser.value("(() => { try { localStorage; return 'kept'; } catch { return 'none'; } })()") == "none"
    browser.value("document.getElementById('theme').click(); document.getElementById('theme').click()")
    assert browser.value(look) == dark
    assert browser.complaints() == []


def test_sorting_and_hiding(browser: Browser, page: Path) -> None:
    browser.open(page)
    names = "[...document.querySelector('#sweep-runs tbody').rows].map(one => one.cells[0].innerText.trim())"
    given = browser.value(names)
    assert given == list(POINTS)
    press = "document.querySelectorAll('#sweep-runs thead')[0].querySelectorAll('button')[2].click()"
    browser.value(press)
    assert browser.value(names) == given[::-1]  # dev best, the highest first
    browser.value(press)
    assert browser.value(names) == given
    assert browser.value("document.querySelector('#sweep-runs th:nth-child(3)').ariaSort") == "ascending"
    seen = """[...document.querySelectorAll("[data-series='sweep-1']")].filter(one =>
        getComputedStyle(one).visibility === "visible").length"""
    drawn = browser.value(seen)
    assert drawn == 2 * (2 + 6)  # two seeds in each chart but the scatter
    box = "document.querySelector('#sweep-rfd input[data-toggles=\"sweep-1\"]')"
    browser.value(f"{box}.click()")
    assert browser.value(seen) == 0
    assert browser.value("document.querySelectorAll('input[data-toggles=\"sweep-1\"]:checked').length") == 0
    browser.value(f"{box}.click()")
    assert browser.value(seen) == drawn


def test_print_is_light_and_whole(browser: Browser, page: Path) -> None:
    browser.open(page, dark=True)
    browser.send(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    assert browser.value("getComputedStyle(document.body).color") == "rgb(29, 28, 26)"
    assert browser.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.value("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    browser.send("Emulation.setDeviceMetricsOverride", width=794, height=1123, deviceScaleFactor=1, mobile=False)
    assert browser.value("document.documentElement.scrollWidth") == 794  # the width of A4
    assert browser.complaints() == []
