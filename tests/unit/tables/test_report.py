"""The report: what it shows of runs and tables, that nothing in it acts or loads, and which runs it
finds.
"""

import hashlib
import json
import re

import pandas as pd
import pytest
from fake_table import leave_run

from lightning_cse.errors import DataError, LightningCSEError
from lightning_cse.report import main
from lightning_cse.runs import Run
from lightning_cse.tables.html import page, section
from lightning_cse.tables.kept import Content, write_runs
from lightning_cse.tables.records import read_runs

MONITOR = "val/rte/accuracy_all"
EVIL = "<script>alert(1)</script><img src=http://example.com/x onerror=alert(2)>"


def write_run(root, seed=0, lr=1e-5, name="dualcse_cross", **changed):
    """Leave a finished run as training does, as far as the report looks at it, and return its
    folder.
    """
    record = {
        "steps": 40,
        "overrides": [f"method.optimizer.lr={lr}"],
        "device": "cpu",
        "metrics": {
            "test/rte/accuracy_all": 0.7 + seed / 100,
            "test/rte/threshold": 0.5,
            "test/rte/loss": 1.5,
        },
        "best": {"step": 20, "score": 0.8, "monitor": MONITOR},
        "encoder": {"name": "minilm_l6"},
        "environment": {"commit": "0123456789abcdef-dirty", "machine": {"cpu": "Z80", "cores": 2}},
    }
    digest = hashlib.sha256(f"{name}{lr}".encode()).hexdigest()[:10]
    folder = leave_run(root, name, seed, digest, **(record | changed)).folder
    rows = ["step,key,value"]
    for step in range(0, 41, 5):
        rows += [f"{step},train/loss,{2 - step / 40}", f"{step},{MONITOR},{0.6 + lr * step}"]
        rows += [f"{step},diag/{key}alignment,{lr}" for key in ("held_out/", "eval/", "rfd_")]

    (folder / "curves.csv").write_text("\n".join(rows) + "\n")

    return folder


def page_of(*paths):
    target = paths[0].parent / "report.html"
    assert main([*map(str, paths), "--to", str(target)]) == 0
    return target.read_text()


def rows_of(text):
    """Return the text of every row of the page's tables, cells apart by bars."""
    rows = []
    for row in re.findall(r"(?s)<tr[^>]*>(.*?)</tr>", text):
        cells = re.findall(r"(?s)<t[hd][^>]*>(.*?)</t[hd]>", row)
        rows.append("|".join(" ".join(cell.replace("<br>", " ").split()) for cell in cells))

    return rows


@pytest.mark.slow
def test_what_runs_measured(tmp_path):
    for seed in (0, 1):
        for lr in (1e-5, 3e-5):
            write_run(tmp_path / "runs", seed, lr)

    text = page_of(tmp_path / "runs")
    assert rows_of(text) == [
        "|seeds|dev|rte/accuracy_all|rte/loss",
        "dualcse_cross, method.optimizer.lr=3e-05|2|80.00 ± 0.00|70.50 ± 0.71|1.5000 ± 0.0000",
        "dualcse_cross, method.optimizer.lr=1e-05|2|80.00 ± 0.00|70.50 ± 0.71|1.5000 ± 0.0000",
    ]
    titles = re.findall(r"<figcaption>(.*?)</figcaption>", text)
    assert titles[:2] == ["train/loss", MONITOR]
    assert len(titles) == 2 + 3
    assert re.findall(r"<h2>(.*?)</h2>", text) == [
        "Runs",
        "Learning curves",
        "Relative fitting difficulty",
    ]
    for fact in ("runs: 4", "encoder: minilm_l6", "machine: cpu, Z80, 2 cores"):
        assert f'<p class="note">{fact}</p>' in text
    assert "commit: 0123456-dirty" in text


@pytest.mark.slow
def test_the_page_loads_nothing(tmp_path):
    for lr in (1e-5, 3e-5):
        write_run(tmp_path / "runs", lr=lr)

    text = page_of(tmp_path / "runs")
    assert text == page_of(tmp_path / "runs")
    links = re.findall(r'(?:href|src)="([^"]*)"', text)
    assert len(links) > 5
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"@import|https?:|url\((?!#)|<script", text)
    assert "Content-Security-Policy\" content=\"default-src 'none';" in text
    anchors = re.findall(r'href="#([^"]+)"', text)
    assert anchors == re.findall(r'<section id="([^"]+)"', text)


def test_whatever_a_record_says_is_only_text(tmp_path):
    best = {"step": 1, "score": 0.5, "monitor": EVIL}
    folder = write_run(tmp_path / "runs", device=EVIL, best=best, encoder={"name": EVIL}, name="x")
    record = folder / "record.json"
    record.write_text(record.read_text().replace('"x"', json.dumps(EVIL)))
    frame = pd.DataFrame({EVIL: [EVIL]}, index=[EVIL])
    text = page(EVIL, {EVIL: EVIL}, [(EVIL, section(frame, [EVIL], text=EVIL))])
    for page_text in (text, page_of(tmp_path / "runs")):
        assert "<script" not in page_text
        assert not re.search(r"<[^>]*\sonerror=|(href|src)=\"http", page_text)

    assert text.count("&lt;script&gt;alert(1)") == 11


def test_long_texts_and_lines_of_a_cell_are_whole():
    cell = "a line\n" + 100 * "x"
    text = page("t", {}, [("s", section(pd.DataFrame({"c": [cell]})))])
    assert f"<td>a line<br>{100 * 'x'}</td>" in text


@pytest.mark.slow
def test_which_runs_are_found(tmp_path):
    folder = write_run(tmp_path / "runs")
    write_run(tmp_path / "runs", seed=1)
    sweep = tmp_path / "runs" / "sweeps" / "2026-01-01"
    sweep.mkdir(parents=True)
    (sweep / "0.json").write_text(json.dumps({"folder": str(folder)}))
    (sweep / "other.json").write_text("[]")
    kept_folder = tmp_path / "kept"
    (run,) = read_runs([folder])
    write_runs(kept_folder, {run.name: Content(run.record, run.curves, {})})
    Run(tmp_path / "runs", "dualcse_cross", "99", 2).fail(DataError("no file"), "training")
    seeds_by_path = {"runs": [0, 1], "runs/sweeps": [0], "kept": [0], "kept/runs.jsonl": [0]}
    seeds_by_path |= {f"kept/{run.name[:-1]}*": [0], "runs/sweeps/2026-01-01/0.json": [0]}
    for path, want in seeds_by_path.items():
        runs = read_runs([tmp_path / path])
        assert sorted(run.record["seed"] for run in runs) == want

    assert read_runs([kept_folder])[0].curves[MONITOR]
    assert rows_of(page_of(tmp_path / "runs"))[1].startswith("dualcse_cross|2|"), "one setting"
    with pytest.raises(LightningCSEError, match=r"other\.json holds no finished runs"):
        read_runs([sweep / "other.json"])


@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    write_run(tmp_path / "runs")
    target = tmp_path / "x.html"
    runs = str(tmp_path / "runs")
    common = ["--profile", "small", "--kept", "--seeds", "0,1", "--to", str(target)]
    assert main(["gausscse/table4", runs, *common, "--runs-dir", runs]) == 0
    text = target.read_text()
    assert "<h1>GaussCSE</h1>" in text
    assert any(
        row.startswith("ent+rev|2|95.95 ± 0.31 paper 97.60 (-1.65)|") for row in rows_of(text)
    )
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert titles[0].startswith("GaussCSE, Table 4: ")
    assert titles[1] == "Runs"
    assert main(["dualcse/tabel5", *common]) == 2
    assert "dualcse/tabel5 holds no finished runs" in capsys.readouterr().err
