"""The report: what it shows of tables, charts and runs, that nothing in it acts or loads, and that it is stable."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.patheffects import withStroke

from lightning_cse import report as entry
from lightning_cse.errors import DataError
from lightning_cse.papers.artefacts import Artefact, Column, Line, Published, Request, Train
from lightning_cse.papers.cells import Cell, Mark, Table, TableLine
from lightning_cse.papers.figures import Series, overlay, theme_variable, themed_svg
from lightning_cse.papers.report import (
    CellView,
    Chart,
    Heading,
    LineView,
    Section,
    TableView,
    artefact_section,
    build_report,
    draw_chart,
    rows_view,
    table_view,
)
from lightning_cse.papers.run_report import ShownRun, read_runs, run_facts, run_sections
from lightning_cse.plots import BLUE, blank_figure, plot_style, series_look

EVIL = "<script>alert(1)</script><img src=http://example.com/x onerror=alert(2)>"
MONITOR = "val/rte/accuracy_all"


class Tags(HTMLParser):
    """Collects the elements of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def record(name: str = "dualcse_cross", seed: int = 0, identity: str = "0123456789", **changed: Any) -> dict[str, Any]:
    """Return a record as a training leaves it, as far as the report looks at it."""
    config = {
        "method": {"optimizer": {"lr": 1e-5}, "loss": {"_target_": "lightning_cse.losses.InfoNCE"}},
        "llm": {"model": "m"},
        "monitor": MONITOR,
        "name": name,
    }
    return {
        "name": name,
        "config_hash": identity,
        "seed": seed,
        "overrides": [f"+experiment={name}", "+profile=small", f"seed={seed}"],
        "metrics": {"test/rte/accuracy_all": 0.7 + seed / 100, "test/rte/threshold": 0.5, "test/rte/loss": 1.5},
        "baselines": {"length": {"test/eis/accuracy": 0.999}},
        "best": {"step": 20, "score": 0.8 + seed / 100, "monitor": MONITOR},
        "steps": 40,
        "seconds": {"training": 61.0, "test": 4.0},
        "device": "cpu",
        "precision": "bf16-mixed",
        "encoder": {"name": "minilm_l6"},
        "environment": {"commit": "0123456789abcdef-dirty", "machine": {"cpu": "A processor", "cores": 2}},
        "decisive": {
            "config": config,
            "data": {"INLI/train.csv": "ab" * 32},
            "encoder": {"name": "minilm_l6"},
        },
        **changed,
    }


def curves(shift: float = 0.0) -> dict[str, list[tuple[int, float]]]:
    """Return curves of a run of forty steps."""
    steps = range(0, 41, 5)
    found = {
        MONITOR: [(step, 0.6 + shift + step / 400) for step in steps],
        "train/loss": [(step, 2 * math.exp(-step / 9)) for step in range(1, 41)],
    }
    for measure in ("alignment", "uniformity"):
        found[f"diag/held_out/{measure}"] = [(step, 0.4 + shift) for step in steps]
        found[f"diag/eval/{measure}"] = [(step, 0.3) for step in steps]
        found[f"diag/rfd_{measure}"] = [(step, 0.1 + shift) for step in steps if step]
    return found


def shown(*records: dict[str, Any]) -> list[ShownRun]:
    return [
        ShownRun(Path(f"/runs/{one['name']}/{one['config_hash']}-s{one['seed']}"), one, curves(one["seed"] / 10))
        for one in records
    ]


def cells_of(page: str) -> list[str]:
    """Return the text of every row of the page's tables, cells apart by bars."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", page, re.DOTALL)
    texts = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [
        "|".join(" ".join(re.sub(r"<[^>]+>", " ", cell.replace("<wbr>", "")).split()) for cell in row) for row in texts
    ]


def flat(view: TableView) -> list[list[str]]:
    return [[line.name, *(cell.text for cell in line.cells)] for line in view.lines]


# -------------------------------------------------------------------------------------------------------- the page


def test_the_page_loads_nothing_and_is_the_same_each_time() -> None:
    def page() -> str:
        runs = shown(record(), record("dualcse_bi", identity="abcdef0123"))
        return build_report("Runs", run_sections(runs), facts=run_facts(runs))

    first = page()
    assert first == page()
    links = [value or "" for _, given in Tags(first).found for key, value in given.items() if key in {"href", "src"}]
    assert len(links) > 10
    assert all(link.startswith(("#", "data:")) for link in links)
    assert re.findall(r"url\((?!#)", first) == []
    assert "@import" not in first
    assert "http:" not in first
    assert "https:" not in first


def test_only_the_pages_own_script_may_run() -> None:
    page = build_report("Runs", [Section("A", "a")])
    (policy,) = (given["content"] for _, given in Tags(page).found if given.get("http-equiv"))
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy  # falls back to the default


def test_whatever_a_record_says_is_only_text() -> None:
    runs = shown(record(EVIL, told=EVIL), record("other", identity="abcdef0123", device=EVIL, precision=EVIL))
    runs[0].record["best"]["monitor"] = EVIL
    runs[1].record["decisive"]["config"][EVIL] = EVIL
    failed = ShownRun(Path("/runs/c"), record(EVIL, seed=1, identity="c"), {}, state="failed", told=EVIL)
    view = TableView(
        EVIL, (Heading(EVIL, EVIL), Heading(EVIL)), (LineView(EVIL, (CellView(*[EVIL] * 4),), EVIL),), (EVIL,)
    )
    sections = [
        *run_sections([*runs, failed], part=EVIL),
        Section(EVIL, "evil", EVIL, (view,), text=f"[a](http://example.com) ![b](http://example.com/b)\n\n{EVIL}"),
    ]
    page = build_report(EVIL, sections, facts={EVIL: EVIL})
    tags = Tags(page).found
    assert [tag for tag, _ in tags].count("script") == 1
    assert not [tag for tag, _ in tags if tag in {"img", "iframe", "object", "embed", "form"}]
    assert not [key for _, given in tags for key in given if key.startswith("on")]
    assert "http://example.com" in page  # as text
    assert not [given for _, given in tags if "example.com" in (given.get("href") or given.get("src") or "")]
    assert page.count("&lt;script&gt;alert(1)") > 10


def test_markdown_makes_tables_and_text() -> None:
    page = build_report("T", [Section("A", "a", text="**bold** <b>raw</b>\n\n| x | y |\n|---|---:|\n| 1 | 2 |\n")])
    assert "<strong>bold</strong> &lt;b&gt;raw&lt;/b&gt;" in page
    assert "x|y" in cells_of(page)
    assert "1|2" in cells_of(page)


def test_two_sections_cannot_share_an_anchor() -> None:
    with pytest.raises(ValueError, match=r"same anchor: \['a', 'a'\]"):
        build_report("T", [Section("A", "a"), Section("B", "a")])


def test_a_line_has_a_cell_for_every_heading() -> None:
    with pytest.raises(ValueError, match=r"table 'T', line 'x': 2 cells and a name under 2 headings"):
        TableView("T", (Heading("a"), Heading("b")), (LineView("x", (CellView(), CellView())),))


# ---------------------------------------------------------------------------------------------------------- charts


def test_a_figure_in_a_page() -> None:
    with plot_style():
        figure = blank_figure(4, 3)
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=BLUE, gid="series.a-0")
        text = axes.text(0.5, 0.5, "a label", path_effects=[withStroke(linewidth=2, foreground="white")])
        axes.set_xlabel("x < y")
    effects = text.get_path_effects()
    one = Series("a-0", "A & <B>", BLUE, "-", ())
    first = themed_svg(figure, "one", "what it shows", [one])
    assert first == themed_svg(figure, "one", "what it shows", [one])
    assert text.get_path_effects() == effects  # left as it was
    assert text.get_gid() is None
    assert ">a label</text>" in first  # text, not outlines
    assert ">x &lt; y</text>" in first
    assert 'class="halo"' in first
    assert 'data-series="a-0"><title>A &amp; &lt;B&gt;</title>' in first
    assert 'aria-label="what it shows"' in first
    assert "stroke: var(--series-0)" in first
    assert not re.findall(r"#[0-9a-fA-F]{6}\b", first)  # every colour follows the theme
    assert "font-family" not in first
    assert "<metadata" not in first
    assert "<style" not in first
    ids = re.findall(r' id="([^"]+)"', first)
    assert ids
    assert all(name.startswith("one-") for name in ids)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', first))
    assert used == set(ids)
    assert not used & set(re.findall(r' id="([^"]+)"', themed_svg(figure, "two", "")))


def test_a_wide_figure_has_a_row_of_its_own() -> None:
    assert not draw_chart(blank_figure(4.2, 3), "T", "a").wide
    assert draw_chart(blank_figure(8, 3), "T", "b").wide


def test_all_runs_in_one_chart() -> None:
    looks = [series_look(number) for number in range(28)]
    assert len(set(looks)) == 28
    series = [Series(f"s-{k}", f"run {k}", *looks[k], (curves(), curves(0.1))) for k in range(3)]
    with plot_style():
        figure = overlay(series, "diag/rfd_alignment", zero=True)
        assert overlay(series, "not/there") is None
    assert figure is not None
    drawn = [line for line in figure.axes[0].get_lines() if line.get_gid()]
    assert [line.get_gid() for line in drawn] == [f"series.s-{k}" for k in (0, 0, 1, 1, 2, 2)]
    assert [line.get_color() for line in drawn[::2]] == [color for color, _ in looks[:3]]
    assert list(drawn[1].get_ydata()) == pytest.approx([0.2] * 8)
    assert theme_variable(BLUE) == "var(--series-0)"
    assert theme_variable("#123456") == "#123456"


def test_a_long_curve_is_smoothed_and_thinned() -> None:
    loss = [(step, float(step % 2)) for step in range(2001)]
    with plot_style():
        figure = overlay([Series("a", "a", BLUE, "-", ({"train/loss": loss},))], "train/loss", smooth=True)
    assert figure is not None
    values = figure.axes[0].get_lines()[0].get_ydata()
    assert 300 < len(values) <= 400
    assert all(abs(value - 0.5) < 0.05 for value in values)


# ------------------------------------------------------------------------------------------------- a paper's tables


def table() -> Table:
    columns = (
        Column("RTE", "metric", ("test/rte/accuracy_all",), {}, 100.0, 2, ()),
        Column("lr", "config", ("method.optimizer.lr",), {}, 1.0, 2, ()),
    )
    artefact = Artefact(
        "dualcse", "table5", "The terms", "DualCSE, Table 5", "table", columns, None, None, None, "A note.", Path()
    )
    ours = Line("DualCSE-Cross", "DualCSE-Cross", "minilm_l6", "roberta_base", Train("dualcse_cross"), (0, 1, 2))
    theirs = Line("GPT-4", "GPT-4", None, None, Published("asked"), ())
    measured = Cell(
        2, 3, 79.5, 0.25, 79.25, 79.75, 80.25, 0.5, -0.75, ("**", "stale"), {0: 79.25, 1: 79.75}, p=0.001, p_holm=0.002
    )
    setting = Cell(n=2, asked=2, mean=1e-5, published=3e-5, difference=-2e-5, text="1e-05")
    return Table(
        artefact,
        Request(),
        columns,
        (
            TableLine(ours, (measured, setting)),
            TableLine(theirs, (Cell(published=62.5), Cell())),
        ),
        marks=(Mark("stale", "†", "older code", False), Mark("profile", "", "profile small", True)),
        machines=("cpu",),
        commits=("0123456",),
    )


def test_a_papers_table() -> None:
    view = table_view(table())
    assert [heading.title for heading in view.headings] == ["", "n", "RTE", "lr"]
    assert view.headings[0].below == "minilm_l6"
    first, second = view.lines
    assert [cell.text for cell in first.cells] == ["2/3", "79.50 ± 0.25", "1e-05"]
    assert first.cells[1].below == "80.25 ± 0.50 (−0.75)"
    assert first.cells[1].marks == "** †"
    assert first.cells[1].hint == "seed 0: 79.25\nseed 1: 79.75\np = 0.001, 0.002 after Holm"
    assert [cell.text for cell in second.cells] == ["", "", ""]
    assert second.cells[1].below == "62.50"
    assert "All measured values: profile small." in view.notes
    assert "† older code." in view.notes
    assert "A note." in view.notes
    section = artefact_section(table().artefact, table(), rows={"settings": [{"setting": "a", "rfd": -0.5, "n": 2}]})
    assert (section.anchor, section.kicker, section.intro) == ("dualcse-table5", "DualCSE, Table 5", "")
    page = build_report("T", [section])
    assert "DualCSE-Cross|2/3|79.50 ± 0.25 ** † 80.25 ± 0.50 (−0.75)|1e-05 3e-05 (-2e-05)" in cells_of(page)
    assert "GPT-4|–|– 62.50|–" in cells_of(page)  # empty, and seen to be
    assert "a|−0.5000|2" in cells_of(page)


def test_a_figure_without_a_table_has_its_note_above() -> None:
    section = artefact_section(table().artefact, None, figures={"length_ratios": blank_figure(4, 3)}, text="said")
    assert section.intro == "A note."
    assert [chart.title for chart in section.charts] == ["Length ratios"]
    assert section.text == "said"


def test_rows_with_words_and_gaps() -> None:
    view = rows_view("T", [{"name": "a", "r": 0.5, "what": "x"}, {"name": "b", "r": None, "what": 3}])
    assert [heading.number for heading in view.headings] == [False, True, False]
    assert flat(view) == [["a", "0.5000", "x"], ["b", "", "3"]]
    assert view.folded


# ------------------------------------------------------------------------------------------------------------- runs


def test_runs_over_their_seeds() -> None:
    other = record("dualcse_bi", identity="abcdef0123")
    other["decisive"]["config"]["method"]["optimizer"]["lr"] = 3e-5
    other["overrides"].append("method.optimizer.lr=3e-5")
    runs, *rest = run_sections(shown(record(), record(seed=1), other), name="x", part="P")
    assert [section.anchor for section in rest] == ["x-learning", "x-rfd", "x-configs"]
    over_seeds, one_by_one, thresholds, baselines = runs.tables
    assert [(heading.title, heading.below) for heading in over_seeds.headings] == [
        ("point", ""),
        ("seeds", ""),
        ("dev", "best"),
        ("rte", "accuracy all"),
        ("rte", "loss"),
    ]
    # The standard deviation of 70 and 71 is the square root of a half.
    assert flat(over_seeds) == [
        ["dualcse_cross", "2", "80.50 ± 0.71", "70.50 ± 0.71", "1.5000 ± 0.0000"],
        ["dualcse_bi", "1", "80.00", "70.00", "1.5000"],
    ]
    assert over_seeds.lines[0].cells[2].hint == "seed 0: 70.00, seed 1: 71.00"
    assert flat(one_by_one)[1] == ["dualcse_cross", "1", "", "81.00", "20", "71.00", "1.5000", "1 min 05 s", "cpu"]
    assert flat(one_by_one)[2][2] == "method.optimizer.lr=3e-5"
    assert one_by_one.lines[1].cells[-1].below == "bf16-mixed"
    assert flat(thresholds) == [["rte/threshold", "0.5000 ± 0.0000", "0.5000"]]
    assert flat(baselines) == [["LENGTH", "99.90"]]
    keys = [series.key for series in rest[0].legend]
    assert keys == ["x-0", "x-1"]
    assert [chart.title for chart in rest[0].charts] == ["Dev score: rte/accuracy_all", "Training loss"]
    assert [chart.title for chart in rest[1].charts] == [
        "RFD of alignment",
        "RFD of uniformity",
        "Alignment, held-out side",
        "Alignment, evaluation side",
        "Uniformity, held-out side",
        "Uniformity, evaluation side",
        "RFD and the final score",
    ]
    assert all(f'data-series="{key}"' in chart.svg for key in keys for chart in rest[1].charts[:-1])


def test_what_differs_between_configs() -> None:
    one, two, three = (record(name, identity=name * 3) for name in ("a", "b", "c"))
    three["decisive"]["config"]["method"]["loss"]["_target_"] = "lightning_cse.losses.GaussianContrastive"
    two["decisive"]["data"]["INLI/train.csv"] = "cd" * 32
    two["decisive"]["config"]["suite"] = {"rte": {"rows": 5}}
    runs = [ShownRun(Path(each["name"]), each) for each in (one, two, three)]
    (section,) = (part for part in run_sections(runs) if part.title.startswith("What differs"))
    configs, suites, files = section.tables
    assert flat(configs) == [["method.loss._target_", "losses.InfoNCE", "losses.InfoNCE", "losses.GaussianContrastive"]]
    assert [cell.stands_out for cell in configs.lines[0].cells] == [False, False, True]
    assert flat(suites) == [["suite.rte.rows", "", "5", ""]]
    assert flat(files) == [["INLI/train.csv", "ababababab", "cdcdcdcdcd", "ababababab"]]


ORIGIN: dict[str, Any] = {
    "format": 1,
    "rows": {"file": "rows.jsonl", "sha256": "ab" * 32, "count": 18},
    "model": "a-model",
    "pattern": {"name": "sts"},
    "acceptance": {
        "sources": {"complete": 18, "given_up": 2},
        "roles": {"positive": {"asked": 25, "accepted": 19}, "negative": {"asked": 20, "accepted": 18}},
    },
    "cost": 0.125,
    "made": {"finished": "2026-01-02T03:04:05+00:00"},
    "unchanged": True,
}


def origins(*documents: object) -> str:
    """Return what the report says of runs whose LLM rows come from there."""
    return said(*(record(seed=seed, provenance={"a/rows.jsonl": one}) for seed, one in enumerate(documents)))


def said(*records: dict[str, Any]) -> str:
    return run_sections([ShownRun(Path(f"/runs/{one['seed']}"), one) for one in records])[0].text


def test_where_llm_rows_come_from_is_told_once() -> None:
    want = (
        "LLM rows `a/rows.jsonl`: 18 by `a-model`, pattern `sts`, 2026-01-02; 18 of 20 sources complete; "
        "37 of 45 replies accepted; cost 0.12 USD."
    )
    assert origins(ORIGIN) == want
    assert origins(ORIGIN, dict(reversed(ORIGIN.items()))) == want
    edited = f"{want} The file was edited after it was made."
    assert origins(ORIGIN, {**ORIGIN, "unchanged": False}) == f"{want}\n\n{edited}"
    assert said(record()) == ""
    assert "<code>a/rows.jsonl</code>: 18 by" in build_report("T", [Section("A", "a", text=origins(ORIGIN))])


@pytest.mark.parametrize(("cost", "told"), [(None, ""), (0, "; cost 0.00 USD"), (0.004, "; cost under 0.01 USD")])
def test_a_cost_is_told_where_it_is_known(cost: object, told: str) -> None:
    assert origins({**ORIGIN, "cost": cost}).endswith(f"replies accepted{told}.")


def test_an_origin_of_which_little_is_known() -> None:
    of_no_use = "LLM rows `a/rows.jsonl`: it is not known where they come from; the file beside them is of no use."
    assert origins({"damaged": "is damaged: ..."}) == of_no_use
    nothing = "LLM rows `a/rows.jsonl`: by `an unnamed model`."
    assert origins({}) == nothing
    assert origins("x") == ""
    wrong = {"rows": 5, "pattern": [], "made": {"finished": 5}, "cost": "a lot", "acceptance": {"roles": {"a": 5}}}
    assert origins(wrong) == nothing
    assert origins({"acceptance": {"sources": {"complete": "x", "given_up": 1}, "roles": [1]}}) == nothing
    assert said(record(provenance=[5])) == ""


def test_an_origin_is_only_text() -> None:
    foreign = {**ORIGIN, "model": f"`{EVIL}` **b**\n\n# head", "pattern": {"name": EVIL * 10}}
    page = build_report("T", [Section("A", "a", text=said(record(provenance={EVIL: foreign})))])
    tags = [tag for tag, _ in Tags(page).found]
    assert tags.count("script") == 1
    assert "img" not in tags
    assert "<strong>b" not in page
    assert page.count("&lt;script&gt;alert(1)") == 3


def test_ngcse_settings_are_coloured_by_pattern_and_styled_by_domain() -> None:
    names = ["ngcse_wiki_dropout", "ngcse_wiki_sts", "ngcse_nli_dropout", "ngcse_nli_sup", "ngcse_nli_sts"]
    sections = run_sections(shown(*(record(name, identity=name.replace("_", "")) for name in names)))
    looks = {series.label: (series.color, series.style) for series in sections[1].legend}
    assert looks["ngcse_wiki_sts"][0] == looks["ngcse_nli_sts"][0]
    assert looks["ngcse_wiki_dropout"][0] == looks["ngcse_nli_dropout"][0]
    assert {looks[name][1] for name in names[2:]} == {"--"}
    assert len(set(looks.values())) == 5


def test_runs_of_one_point_and_runs_without_curves() -> None:
    runs = [ShownRun(Path("/runs/a"), record()), ShownRun(Path("/runs/b"), record(seed=1))]
    assert [section.anchor for section in run_sections(runs)] == ["sweep-runs"]
    assert run_sections([]) == []
    assert run_facts(runs) == {
        "runs": "2",
        "encoder": "minilm_l6",
        "machine": "cpu, A processor, 2 cores",
        "commit": "0123456-dirty",
    }
    with pytest.raises(DataError, match="both seed 0 of dualcse_cross"):
        run_sections([ShownRun(Path("/runs/a"), record()), ShownRun(Path("/runs/b"), record())])


# ---------------------------------------------------------------------------------------------------------- reading


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the folder of a run, finished where it is given a record."""

    def write(name: str, seed: int = 0, found: dict[str, Any] | None = None, **files: str) -> Path:
        folder = tmp_path / "runs" / name / f"0123456789-s{seed}"
        folder.mkdir(parents=True)
        config = f"name: {name}\nseed: {seed}\nmonitor: {MONITOR}\nencoder: {{name: tiny, source: hub}}\n"
        (folder / "config.yaml").write_text(config, encoding="utf-8")
        (folder / "curves.csv").write_text(f"step,key,value\n0,{MONITOR},0.5\n", encoding="utf-8")
        if found is not None:
            (folder / "record.json").write_text(json.dumps(found), encoding="utf-8")
        for file, text in files.items():
            (folder / f"{file}.json").write_text(text, encoding="utf-8")
        return folder

    return write


def test_runs_are_found_below_a_folder(write: Write, tmp_path: Path) -> None:
    finished = write("a", 0, record("a"))
    evaluation = finished / "evaluate" / "sts" / "0-s0"
    evaluation.mkdir(parents=True)
    (evaluation / "record.json").write_text(json.dumps(record("evaluate")), encoding="utf-8")
    failed = write("b/c", 1, failed='{"type": "TrainingError", "message": "loss is nan"}')
    write("d")
    composed = tmp_path / "runs" / "hydra" / ".hydra"
    composed.mkdir(parents=True)
    (composed / "config.yaml").write_text("hydra: {}\n", encoding="utf-8")
    runs = read_runs([tmp_path / "runs", finished])
    assert [(run.record["name"], run.record["seed"], run.state) for run in runs] == [
        ("a", 0, "finished"),
        ("b/c", 1, "failed"),
        ("d", 0, "new"),
    ]
    assert runs[1].path == failed
    assert runs[1].told == "TrainingError: loss is nan"
    assert runs[1].record["encoder"]["name"] == "tiny"
    assert runs[2].curves == {MONITOR: [(0, 0.5)]}
    assert run_facts(runs)["runs"] == "1 finished, 1 failed, 1 new"
    page = build_report("T", run_sections(runs))
    assert any(row.startswith("b/c|1|failed TrainingError: loss is nan|") for row in cells_of(page))


def test_records_kept_as_files(tmp_path: Path) -> None:
    (tmp_path / "a-0-s0.json").write_text(json.dumps(record("a")), encoding="utf-8")
    (tmp_path / "a-0-s1.json").write_text(json.dumps(record("a", 1)), encoding="utf-8")
    (tmp_path / "a-0-s1.curves.csv").write_text(f"step,key,value\n5,{MONITOR},0.5\n", encoding="utf-8")
    runs = read_runs([tmp_path])
    assert [(run.record["seed"], dict(run.curves)) for run in runs] == [(0, {}), (1, {MONITOR: [(5, 0.5)]})]


def test_what_is_no_run_is_told(write: Write, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"runs holds no runs: give folders of runs"):
        read_runs([tmp_path / "runs"])
    damaged = write("a", 0, {"name": "a"})
    with pytest.raises(DataError, match=r"record\.json has no config_hash, seed: it is not the record of a run"):
        read_runs([damaged])
    (damaged / "record.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"record\.json is damaged .*: redo the run with force=true"):
        read_runs([damaged])


# ------------------------------------------------------------------------------------------------------ the command


def test_the_command_writes_a_sweep(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(write("a", seed, record("a", seed))) for seed in (0, 1)]
    target = tmp_path / "made" / "report.html"
    assert entry.main([*paths, "--to", str(target)]) == 0
    assert capsys.readouterr().out.startswith(f"written: {target} (")
    page = target.read_text(encoding="utf-8")
    assert "<title>Runs: a</title>" in page
    assert "a|2|80.50 ± 0.71|70.50 ± 0.71|1.5000 ± 0.0000" in cells_of(page)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["dualcsee"], "dualcsee: neither a path nor an artefact - did you mean 'dualcse'?"),
        (["dualcse/table55"], "did you mean 'dualcse/table5'?"),
        (["."], "holds no runs"),
    ],
)
def test_the_command_tells_what_is_wrong(
    arguments: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert entry.main(arguments) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert "Traceback" not in captured.err
    assert not (tmp_path / "report.html").exists()


def test_a_place_that_cannot_be_written(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write("a", 0, record("a"))
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert entry.main([str(run), "--to", str(tmp_path / "file" / "report.html")]) == 2
    assert "give another place with --to" in capsys.readouterr().err


def test_an_artefact_that_cannot_be_made_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LIGHTNING_CSE_DATA", str(tmp_path / "no corpora"))
    target = tmp_path / "report.html"
    what = ["gausscse/figure2", "gausscse/table4", "--runs-dir", str(tmp_path / "runs")]
    assert entry.main([*what, "--to", str(target)]) == 0
    assert "gausscse/figure2 is left empty" in capsys.readouterr().err
    page = target.read_text(encoding="utf-8")
    assert "Not made:" in page
    assert 'id="gausscse-table4"' in page


def test_a_config_that_is_damaged_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "a" / "0123456789-s0"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("a: [", encoding="utf-8")
    assert entry.main([str(run), "--to", str(tmp_path / "report.html")]) == 2
    assert "config.yaml is damaged" in capsys.readouterr().err


def test_charts_are_dataclasses_of_plain_values() -> None:
    chart = draw_chart(blank_figure(4, 3), "T", "a", caption="C.")
    assert chart == Chart("T", chart.svg, "C.", wide=False)
    assert 'aria-label="T. C"' in chart.svg
