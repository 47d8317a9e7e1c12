"""The report: what it shows of runs and tables, that nothing in it acts or loads, and which runs it
finds.
"""

import base64
import hashlib
import json
import re

import pytest

from lightning_cse.errors import LightningCSEError
from lightning_cse.papers.reading import read_runs
from lightning_cse.papers.report import build_report, run_facts, run_sections
from lightning_cse.report import main

MONITOR = "val/rte/accuracy_all"
EVIL = "<script>alert(1)</script><img src=http://example.com/x onerror=alert(2)>"


def write_run(root, seed=0, lr=1e-5, name="dualcse_cross", **changed):
    """Leave a finished run as training does, as far as the report looks at it, and return its
    folder.
    """
    config_hash = hashlib.sha256(f"{name}{lr}".encode()).hexdigest()[:10]
    folder = root / name / f"{config_hash}-s{seed}"
    folder.mkdir(parents=True)
    record = {
        "name": name,
        "config_hash": config_hash,
        "seed": seed,
        "steps": 40,
        "device": "cpu",
        "metrics": {
            "test/rte/accuracy_all": 0.7 + seed / 100,
            "test/rte/threshold": 0.5,
            "test/rte/loss": 1.5,
        },
        "baselines": {"length": {"test/rte/accuracy_all": 0.999}},
        "best": {
            "step": 20,
            "score": 0.8,
            "monitor": MONITOR,
        },
        "seconds": {"training": 61.0, "test": 4.0},
        "encoder": {"name": "minilm_l6"},
        "environment": {"commit": "0123456789abcdef-dirty", "machine": {"cpu": "Z80", "cores": 2}},
        "decisive": {
            "config": {"method": {"optimizer": {"lr": lr}}, "name": name},
            "data": {"train.csv": "ab"},
        },
        **changed,
    }
    (folder / "record.json").write_text(json.dumps(record))
    rows = ["step,key,value"]
    for step in range(0, 41, 5):
        rows += [f"{step},train/loss,{2 - step / 40}", f"{step},{MONITOR},{0.6 + lr * step}"]
        for what in ("alignment", "uniformity"):
            rows += [
                f"{step},diag/{key}{what},{0.4 + lr}" for key in ("held_out/", "eval/", "rfd_")
            ]
    (folder / "curves.csv").write_text("\n".join(rows) + "\n")
    return folder


def page_of(*paths):
    runs = read_runs(paths)
    return build_report(
        "Runs",
        run_sections(runs),
        facts=run_facts(runs),
    )


def rows_of(page):
    """Return the text of every row of the page's tables, cells apart by bars."""
    cells = (
        re.findall(
            r"<t[hd][^>]*>(.*?)</t[hd]>",
            row,
            re.DOTALL,
        )
        for row in re.findall(
            r"<tr>(.*?)</tr>",
            page,
            re.DOTALL,
        )
    )
    return [
        "|".join(
            " ".join(
                re.sub(
                    r"<wbr>|<[^>]+>",
                    lambda m: " " * (m[0] != "<wbr>"),
                    cell,
                ).split()
            )
            for cell in row
        )
        for row in cells
    ]


def test_what_runs_measured(tmp_path):
    for seed in (0, 1):
        for lr in (1e-5, 3e-5):
            write_run(tmp_path, seed, lr)
    page = page_of(tmp_path)
    rows = rows_of(page)
    assert rows[:4] == [
        "run|seeds|dev|rte accuracy_all|rte loss",
        "lr 3e-05|2|80.00 ± 0.00|70.50 ± 0.71|1.5000 ± 0.0000",
        "lr 1e-05|2|80.00 ± 0.00|70.50 ± 0.71|1.5000 ± 0.0000",
        "LENGTH baseline|–|–|99.90|–",
    ]
    assert rows[-1] == "method.optimizer.lr|3e-05|1e-05"
    assert "1 keys differ, 2 are the same for all" in page
    titles = re.findall(r"<h3>(.*?)</h3>", page)
    assert titles[:2] == ["Dev score: rte/accuracy_all", "Training loss, moving average"]
    assert {"RFD of alignment", "Uniformity, held-out side"} <= set(titles)
    assert page.count('data-series="sweep-1"') == 2 * len(titles), "two seeds in each chart"
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert facts == {
        "runs": "4 finished",
        "encoder": "minilm_l6",
        "machine": "cpu, Z80, 2 cores",
        "commit": "0123456-dirty",
        "time": "0:04:20",
    }


def test_the_page_loads_nothing_and_only_its_own_script_may_run(tmp_path):
    for lr in (1e-5, 3e-5):
        write_run(tmp_path, lr=lr)
    page = page_of(tmp_path)
    assert page == page_of(tmp_path)
    links = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert len(links) > 5
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"@import|https?:|url\((?!#)", page.replace("http://www.w3.org/", ""))
    (script,) = re.findall(
        r"<script>(.*?)</script>",
        page,
        re.DOTALL,
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    identifiers = re.findall(r'\bid="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))


def test_whatever_a_record_says_is_only_text(tmp_path):
    records = {
        "device": EVIL,
        "best": {
            "step": 1,
            "score": 0.5,
            "monitor": EVIL,
        },
        "encoder": {"name": EVIL},
    }
    runs = read_runs(
        [
            write_run(tmp_path, **records),
            write_run(
                tmp_path,
                name="b",
                baselines={EVIL: {}},
            ),
        ]
    )
    text = f"[a](http://example.com) ![b](http://example.com/b)\n\n{EVIL}"
    sections = [section | {"text": text} for section in run_sections(runs, part=EVIL)]
    page = build_report(
        EVIL,
        sections,
        facts={EVIL: EVIL, **run_facts(runs)},
    )
    assert page.count("<script") == 1
    assert not re.search(r"<img|<[^>]*\sonerror=|(href|src)=\"http", page)
    assert page.count("&lt;script&gt;alert(1)") > 10


def test_which_runs_are_found(tmp_path):
    folder = write_run(tmp_path / "runs")
    write_run(tmp_path / "runs", seed=1)
    sweep = tmp_path / "runs" / "sweeps" / "2026-01-01"
    sweep.mkdir(parents=True)
    (sweep / "0.json").write_text(
        json.dumps(
            {
                "overrides": [],
                "status": "finished",
                "folder": str(folder),
            }
        )
    )
    (sweep / "1.json").write_text(
        json.dumps(
            {
                "overrides": [],
                "status": "failed",
                "folder": None,
            }
        )
    )
    (sweep / "damaged.json").write_text("{")
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "a.json").write_text((folder / "record.json").read_text())
    (kept / "a.curves.csv").write_text((folder / "curves.csv").read_text())
    for seed, file in ((2, "failed.json"), (3, "checkpoints/last.ckpt")):
        open_run = folder.with_name(f"{folder.name[:-1]}{seed}")
        (open_run / "checkpoints").mkdir(parents=True)
        (open_run / "config.yaml").write_text("name: dualcse_cross\n")
        (open_run / file).write_text('{"type": "DataError", "message": "no file"}')
    found = {
        place: sorted((run.record["seed"], run.state) for run in read_runs([tmp_path / place]))
        for place in (
            "runs",
            "runs/dualcse_cross",
            "runs/sweeps",
            "kept",
            "kept/a.json",
        )
    }
    every = [
        (0, "finished"),
        (1, "finished"),
        (2, "failed"),
        (3, "interrupted"),
    ]
    one = [(0, "finished")]
    assert list(found.values()) == [
        every,
        every,
        one,
        one,
        one,
    ]
    assert read_runs([kept])[0].curves[MONITOR]
    assert "lr" not in rows_of(page_of(tmp_path / "runs"))[1], (
        "one point, with its unfinished seeds"
    )
    assert [run.record["seed"] for run in read_runs([tmp_path / "runs"], seeds=(1, 5))] == [1]
    (tmp_path / "none").mkdir()
    for place in ("none", "runs/sweeps/2026-01-01/damaged.json"):
        with pytest.raises(LightningCSEError, match=f"{place} holds no runs"):
            read_runs([tmp_path / place])


def test_the_command(tmp_path, capsys):
    write_run(tmp_path / "runs")
    target = tmp_path / "x.html"
    common = [
        "--profile",
        "small",
        "--kept",
        "--seeds",
        "0,1",
        "--to",
        str(target),
        "--runs-dir",
        str(tmp_path / "runs"),
    ]
    assert (
        main(
            [
                "gausscse/table4",
                str(tmp_path / "runs"),
                *common,
            ]
        )
        == 0
    )
    page = target.read_text()
    assert "<h1>GaussCSE</h1>" in page
    assert any(row.startswith("ent+rev|2|95.99 ± 0.13 97.60 (-1.61)|") for row in rows_of(page))
    assert re.findall(r'<section id="([^"]+)"', page)[:2] == [
        "gausscse-table4",
        "gausscse-sweep-runs",
    ]
    assert main(["dualcse/tabel5", *common]) == 2
    assert (
        "dualcse/tabel5: neither an artefact nor a path - did you mean 'dualcse/table5'?"
        in capsys.readouterr().err
    )
