"""The report in a real browser: its script runs under its own policy, and nothing is refused or
reported.
"""

import itertools
import json
import re
import shutil
import subprocess

import pytest

from lightning_cse.report import main

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def test_the_page_in_a_browser(tmp_path):
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"needs a browser, and none of {', '.join(BROWSERS)} is installed")

    for name, seed in itertools.product("ab", (0, 1)):
        run = tmp_path / "runs" / name / f"0123456789-s{seed}"
        run.mkdir(parents=True)
        record = {"name": name, "config_hash": "0123456789", "seed": seed, "steps": 2}
        scores = {"metrics": {"test/x/accuracy": 0.5 + seed / 10}}
        (run / "record.json").write_text(json.dumps({**record, **scores}))
        (run / "curves.csv").write_text("step,key,value\n0,train/loss,2\n1,train/loss,1\n")

    page = tmp_path / "report.html"
    assert main([str(tmp_path / "runs"), "--to", str(page)]) == 0
    command = [
        program,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=2000",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, "an error or a refusal of the policy"
    assert re.search(
        r'<button id="theme" type="button" data-now="system">Theme: system</button>', done.stdout
    )
    assert done.stdout.count('title="sort"') >= 3
    assert done.stdout.count('<img class="figure"') == 1
