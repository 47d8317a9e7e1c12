"""NGCSE's figures, tables and correlations: what they show of hand-made settings, of runs, and of the release."""

from __future__ import annotations

import importlib.util
import json
import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from lightning_cse.papers.collect import published_rows
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from lightning_cse.errors import DataError
from lightning_cse.papers.ngcse import (
    Setting,
    correlation_table,
    correlation_with_interval,
    draw_settings,
    draw_studies,
    keep_curves,
    read_published,
    read_release,
    read_settings,
    read_study,
    setting_name,
    settings_table,
    study_of_records,
)
from lightning_cse.runs import Curves, CurveSummary, decisive, summarise

EXPERIMENTS = Path(__file__).parents[3] / "experiments" / "ngcse"
KEYS = [f"diag/{side}/{measure}" for side in ("held_out", "eval") for measure in ("alignment", "uniformity")]


def curves(seed: int, steps: int = 6) -> dict[str, list[tuple[int, float]]]:
    generator = random.Random(seed)
    found = {key: [(125 * k, generator.uniform(0.1, 0.6)) for k in range(steps)] for key in KEYS}
    return found | {"val/stsb/spearman": [(125 * k, generator.uniform(0.7, 0.9)) for k in range(steps)]}


def setting(name: str, *seeds: int) -> Setting:
    runs = tuple(curves(seed) for seed in seeds)
    return Setting(name, tuple(summarise(run) for run in runs), runs)


SETTINGS = [setting("Wiki.dropout", 0, 1), setting("NLI.dropout", 2), setting("NLI.SUP", 3)]

MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    def make(name: str, seed: int, identity: str = "0123456789", monitor: str = "val/stsb/spearman") -> Path:
        folder = tmp_path / "runs" / name / f"{identity}-s{seed}"
        file = Curves(folder / "curves.csv")
        for key, points in curves(seed).items():
            for step, value in points:
                file.append(step, {key: value, "train/loss": 1.0})
        record = {"name": name, "config_hash": identity, "seed": seed, "best": {"monitor": monitor}}
        (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")
        return folder

    return make


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved, in their order."""
    kept: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: Any, **options: Any) -> None:
        kept.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return kept


# ----------------------------------------------------------------------------------------------------------- reading


def test_names_are_the_papers() -> None:
    wanted = ["dropout", "token_shuffle", "token_cutoff", "NLI", "STS", "STS_HT", "SUP"]
    for separator, prefix in (("_", "ngcse_"), ("/", "")):
        got = [setting_name(f"{prefix}nli{separator}{pattern.lower()}") for pattern in wanted]
        assert got == [f"NLI.{pattern}" for pattern in wanted]
    assert setting_name("ngcse_wiki_sts_ht_final") == "Wiki.STS_HT final"
    assert setting_name("wiki") == "wiki"


def test_runs_and_their_kept_curves_say_the_same(make_run: MakeRun, tmp_path: Path) -> None:
    folders = [make_run("ngcse_nli_sup", 1), make_run("ngcse_nli_sup", 0), make_run("ngcse_wiki_dropout", 2)]
    from_runs = read_settings(folders)
    assert [s.name for s in from_runs] == ["Wiki.dropout", "NLI.SUP"]
    assert from_runs[1].summaries == (summarise(curves(0)), summarise(curves(1))), "seeds in order"
    kept = keep_curves(folders, tmp_path / "kept")
    assert sorted(path.name for path in kept) == [
        "ngcse_nli_sup-s0.csv",
        "ngcse_nli_sup-s1.csv",
        "ngcse_wiki_dropout-s2.csv",
    ]
    keep_curves(folders, tmp_path / "kept")  # again, and nothing is there twice
    from_files = read_settings([tmp_path / "kept"])
    assert [s.summaries for s in from_files] == [s.summaries for s in from_runs]
    assert {key for s in from_files for run in s.curves for key in run} == {*KEYS, "val/stsb/spearman"}
    assert read_settings(kept) == from_files


def test_a_record_says_its_own_dev_score(make_run: MakeRun) -> None:
    (other,) = read_settings([make_run("ngcse_nli_sup", 0, monitor="val/snli/auprc")])
    assert other.summaries[0].final_score is None
    assert other.summaries[0].rfd_alignment is not None


def test_what_is_no_run_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    a, b = make_run("ngcse_nli_sup", 0), make_run("ngcse_nli_sup", 1, identity="9876543210")
    with pytest.raises(DataError, match=r"two points of ngcse_nli_sup"):
        read_settings([a, b])
    with pytest.raises(DataError, match=r"both seed 0 of ngcse_nli_sup"):
        read_settings([a, *keep_curves([a], tmp_path / "kept")])
    with pytest.raises(DataError, match=r"empty holds no curves: give run folders"):
        (tmp_path / "empty").mkdir()
        read_settings([tmp_path / "empty"])
    with pytest.raises(DataError, match=r"ngcse\.csv: the file's name must be <name>-s<seed>\.csv"):
        (tmp_path / "ngcse.csv").write_text("step,key,value\n", encoding="utf-8")
        read_settings([tmp_path / "ngcse.csv"])
    with pytest.raises(DataError, match=r"holds no released setting"):
        read_release(tmp_path / "empty")


def test_a_study_is_read_by_number(tmp_path: Path) -> None:
    path = tmp_path / "m1.csv"
    path.write_text("margin_1,avg\n10e-2,79.10\n5e-3,79.79\n10e-2,79.2", encoding="utf-8")
    assert read_study(path) == {0.005: [79.79], 0.1: [79.1, 79.2]}
    path.write_text("margin_1,avg\n10e-2,79.10\n5e-3,\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"m1\.csv, line 3: expected two numbers, found \['5e-3', ''\]"):
        read_study(path)
    with pytest.raises(DataError, match=r"m2\.csv is missing"):
        read_study(tmp_path / "m2.csv")


def test_a_study_of_records_is_by_option() -> None:
    def record(rows: Any, score: float) -> dict[str, Any]:
        document = {"config": {"data": {"llm_rows": rows}}}
        return {"name": "x", "config_hash": "0", "seed": 1, "decisive": document, "metrics": {"test/a": score}}

    records = [record(20, 0.75), record(0, 0.5), record(20, 0.25)]
    assert study_of_records([], "data.llm_rows", "test/a") == {}
    assert study_of_records(records, "data.llm_rows", "test/a") == {0: [50], 20: [75, 25]}
    with pytest.raises(DataError, match=r"x 0, seed 1: data\.rows is None, which is no number"):
        study_of_records(records, "data.rows", "test/a")
    with pytest.raises(DataError, match=r"no metric test/b; metrics there: test/a"):
        study_of_records(records, "data.llm_rows", "test/b")


POSITIVE, NEGATIVE = "method.hierarchical_triplet.margin_positive", "method.hierarchical_triplet.margin_negative"


def margin_run(
    positive: float, negative: float, seed: int = 0, *, contrastive: str = "multiple_positive", weights: str = "a"
) -> dict[str, Any]:
    """The record of a run whose score tells which one it is."""
    config = {
        "name": "x",
        "method": {
            "contrastive": contrastive,
            "hierarchical_triplet": {"margin_positive": positive, "margin_negative": negative},
        },
    }
    return {
        "name": "x",
        "config_hash": f"{positive:g}-{negative:g}",
        "seed": seed,
        "decisive": decisive(config, data={}, encoder={"weights": weights}, resolved={}),
        "metrics": {"test/a": positive + 10 * negative + seed},
    }


def test_a_study_keeps_the_runs_that_differ_in_its_option_alone(caplog: pytest.LogCaptureFixture) -> None:
    across = [margin_run(positive, 0.05, seed) for positive in (5e-3, 0.05, 0.1) for seed in range(3)]
    along = [margin_run(5e-3, negative, seed) for negative in (1e-3, 4e-2) for seed in range(3)]
    alien = margin_run(0.05, 0.05, contrastive="single_positive")
    records = [alien, *along, *across]
    with caplog.at_level("WARNING"):
        study = study_of_records(records, POSITIVE, "test/a")
    want = {positive: [100 * (positive + 0.5 + seed) for seed in range(3)] for positive in (5e-3, 0.05, 0.1)}
    assert {value: pytest.approx(scores) for value, scores in study.items()} == want
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3
    assert (
        "leaves out x 0.05-0.05, seed 0: unlike the 9 runs that it keeps in method.contrastive "
        '("multiple_positive" and "single_positive")'
    ) in "".join(told)
    assert f"x 0.005-0.04, seed 2: unlike the 9 runs that it keeps in {NEGATIVE} (0.05 and 0.04)" in "".join(told)
    other = study_of_records(records, NEGATIVE, "test/a")
    assert {value: len(scores) for value, scores in other.items()} == {1e-3: 3, 4e-2: 3, 0.05: 3}
    assert other[0.05] == pytest.approx([100 * (5e-3 + 0.5 + seed) for seed in range(3)])


def test_a_study_that_is_not_clear_names_what_differs() -> None:
    one, other = ([margin_run(positive, 0.05, weights=w) for positive in (0.1, 0.2)] for w in "ab")
    with pytest.raises(DataError, match=r'first in encoder\.weights \("a" and "b"\); give the runs of one'):
        study_of_records([*one, *other], POSITIVE, "test/a")
    assert list(study_of_records([*one, *other, margin_run(0.3, 0.05)], POSITIVE, "test/a")) == [0.1, 0.2, 0.3]
    with pytest.raises(DataError, match=r"margin_negative \(0\.05 and 0\.04\)"):
        study_of_records([margin_run(0.1, 0.05), margin_run(0.1, 0.05, 1), margin_run(0.2, 0.04)], POSITIVE, "test/a")
    bare = margin_run(0.1, 0.05, contrastive="single_positive")
    del bare["decisive"]["config"]["method"]["hierarchical_triplet"]
    with pytest.raises(DataError, match=r"x 0\.1-0\.05, seed 0: .*margin_positive is None, which is no number"):
        study_of_records([*one, bare], POSITIVE, "test/a")


# --------------------------------------------------------------------------------------------------------- published


def test_the_published_tables_average_as_printed() -> None:
    rows = {row.label: row for row in published_rows(EXPERIMENTS / "published.csv")}
    assert rows["Wiki.STS_HT, bert_base"].cell("STS Avg") == "79.79"
    assert rows["CL.multiple_positive, bert_base"].cell("STS Avg") == "79.14"
    sts = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
    transfer = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
    differ = {}
    for label, row in rows.items():
        for parts, average in ((sts, "STS Avg"), (transfer, "transfer Avg")):
            if parts[0] in row.values:
                off = statistics.fmean(row.values[part][0] for part in parts) - row.values[average][0]
                if abs(off) > 0.0051:
                    differ[label, average] = round(off, 2)
    averaged = [row for row in rows.values() if row.values.keys() & {"STS Avg", "transfer Avg"}]
    assert len(averaged) == 28 + 27, "Tables 1 to 4, and Figure 5's"
    # As printed; the first was misprinted before, in the paper it was taken from.
    assert differ == {
        ("RoBERTa-whitening (unsup), roberta_base", "STS Avg"): 1.54,
        ("SBERT (sup), bert_base", "STS Avg"): -0.03,
        ("PromptBERT (unsup), bert_base", "STS Avg"): -0.02,
        ("NLI.STS_HT, bert_base", "STS Avg"): 0.02,
        ("BERT-avg (unsup), bert_base", "transfer Avg"): 0.01,
    }


def test_the_published_settings_are_thirteen() -> None:
    published = read_published(EXPERIMENTS / "published_rfd.csv")
    start = published.pop("pretrained")
    assert (start.mean("best_score"), start.summaries[0].best_step) == (0.3173, 0)
    assert len(published) == 13
    labels = [round(100 * float(s.mean("final_score") or 0), 1) for s in published.values()]
    assert labels == [81.1, 79.7, 81.2, 81.5, 81.4, 83.3, 78.1, 80.0, 79.6, 83.0, 84.1, 84.6, 85.5]
    assert sum(s.mean("rfd") is not None for s in published.values()) == 9


def test_a_published_cell_that_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    head = (EXPERIMENTS / "published_rfd.csv").read_text(encoding="utf-8").splitlines()[0]
    path.write_text(f"{head}\nWiki.STS,x,,,,,,\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"p\.csv, line 2: .*'x'"):
        read_published(path)
    path.write_text("setting\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"p\.csv, line 1: no column rfd_alignment"):
        read_published(path)


# ------------------------------------------------------------------------------------------------------ correlations


def test_fishers_interval_by_hand() -> None:
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [2.0, 1.0, 4.0, 3.0, 7.0, 5.0, 6.0]
    r = np.corrcoef(x, y)[0, 1]
    z = 0.5 * math.log((1 + r) / (1 - r))
    ends = [z - 1.959964 / 2, z + 1.959964 / 2]
    want = [(math.exp(2 * e) - 1) / (math.exp(2 * e) + 1) for e in ends]
    assert correlation_with_interval(x, y) == pytest.approx((r, *want), abs=1e-6)


def test_the_interval_of_ranks_is_that_of_ranks() -> None:
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0], [0.1, 0.2, 0.4, 0.3, 100.0]
    got = correlation_with_interval(x, y, ranks=True)
    assert got.r == pytest.approx(0.9)
    assert got == correlation_with_interval(x, np.exp(np.asarray(y) / 50), ranks=True), "only ranks count"
    half = 1.959964 * math.sqrt((1 + 0.81 / 2) / 2)
    assert got[1:] == pytest.approx([math.tanh(math.atanh(0.9) + s * half) for s in (-1, 1)], abs=1e-6)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(600):
        x = generator.standard_normal(13)
        _, low, high = correlation_with_interval(x, 0.6 * x + 0.8 * generator.standard_normal(13))
        assert low is not None
        assert high is not None
        covered += low < 0.6 < high
    assert covered / 600 == pytest.approx(0.95, abs=0.03)


def test_no_interval_where_there_is_none() -> None:
    assert correlation_with_interval([1, 2, 3], [1, 3, 2]) == (pytest.approx(0.5), None, None)
    assert correlation_with_interval([1, 2, 3, 4], [2, 4, 6, 8]) == (pytest.approx(1), None, None)
    with pytest.raises(ValueError, match=r"at least 3 numbers, got shapes \(2,\) and \(2,\)"):
        correlation_with_interval([1, 2], [1, 2])
    with pytest.raises(ValueError, match="must vary"):
        correlation_with_interval([1, 2, 3], [1, 1, 1])


def test_the_authors_tendency_of_nine_settings() -> None:
    """Their values, so the correlations of the nine settings whose curves they gave out."""
    published = read_published(EXPERIMENTS / "published_rfd.csv")
    lines = correlation_table(list(published.values())).splitlines()
    cells = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:4]] for line in lines[2:]}
    assert cells["RFD_a, all"] == ["9", "+0.898 [+0.58, +0.98]"]
    assert cells["RFD_u, all"] == ["9", "+0.268 [-0.48, +0.79]"]
    assert cells["RFD_u, Wiki"][1].startswith("-0.587")
    assert cells["RFD_a + RFD_u, NLI"][1].startswith("+0.945")
    assert list(cells)[::3] == ["RFD_a, all", "RFD_a, Wiki", "RFD_a, NLI"]


def test_a_correlation_of_too_few_settings_is_left_open() -> None:
    lines = correlation_table(SETTINGS).splitlines()
    assert len(lines) == 2 + 9
    assert next(line for line in lines if "NLI" in line) == "| RFD_a, NLI | 2 |  |  |"
    assert correlation_table([Setting("x", (CurveSummary(),))]).splitlines()[-1] == "| RFD_a + RFD_u, all | 0 |  |  |"


def test_the_table_has_the_authors_values_beside_ours() -> None:
    ours = [
        Setting("NLI.SUP", (CurveSummary(0.1, 0.2, 0.8), CurveSummary(0.3, 0.0, 0.9))),
        Setting("NLI.mine", (CurveSummary(0.5, None, None),)),
    ]
    theirs = {"NLI.SUP": Setting("NLI.SUP", (CurveSummary(0.25, -0.5, 0.855047),))}
    head, _, first, second = settings_table(ours, theirs).splitlines()
    cells = [cell.strip() for cell in first.split("|")[1:-1]]
    assert cells[:6] == ["NLI.SUP", "2", "+0.2000 ± 0.1414", "+0.1000 ± 0.1414", "+0.3000 ± 0.0000", "85.00 ± 7.07"]
    assert cells[6:] == ["+0.2500", "-0.5000", "-0.2500", "85.50"]
    assert [cell.strip() for cell in second.split("|")[1:-1]] == ["NLI.mine", "1", "+0.5000", *[""] * 7]
    assert head.count("|") == first.count("|") == second.count("|")


# ----------------------------------------------------------------------------------------------------------- figures


def coloured(figure: Figure) -> list[tuple[list[float], float]]:
    """Return where the points coloured by a score are, with the score."""
    return [
        (list(map(float, at)), float(score))
        for drawing in figure.axes[0].collections
        if isinstance(drawing, PathCollection) and drawing.get_array() is not None
        for at, score in zip(np.asarray(drawing.get_offsets()), np.asarray(drawing.get_array()), strict=True)
    ]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_the_figures_of_settings(tmp_path: Path, drawn: list[Figure]) -> None:
    before = dict(mpl.rcParams)
    paths = draw_settings(SETTINGS, tmp_path / "figures", pretrained_score=0.5)
    names = ["fitting_difficulty.png", "best_step.png", "process.png", "process_wiki.png", "process_nli.png"]
    assert [path.name for path in paths] == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert dict(mpl.rcParams) == before

    difficulty, best, process, *_ = drawn
    wanted = [([s.mean("rfd_uniformity"), s.mean("rfd_alignment")], 100 * s.mean("final_score")) for s in SETTINGS]
    for (at, score), (want, final) in zip(coloured(difficulty), wanted, strict=True):
        assert at == pytest.approx(want)
        assert score == pytest.approx(final)
    assert texts(difficulty) == [f"{s.name} ({100 * (s.mean('final_score') or 0):.1f})" for s in SETTINGS]

    start = dict(SETTINGS[1].curves[0]["val/stsb/spearman"])[0]  # of NLI.dropout, whose curves have a score at step 0
    assert texts(best)[-1] == f"pretrained ({100 * start:.1f})"
    assert len(coloured(best)) == 3, "the encoder before training has no colour"

    assert [axes.get_title() for axes in process.axes[:3]] == ["NLI.SUP", "NLI.dropout", "Wiki.dropout"]
    held_out, evaluation = process.axes[0].get_lines()
    assert (held_out.get_linestyle(), evaluation.get_linestyle()) == ("-", "--")
    assert list(held_out.get_ydata()) == [v for _, v in SETTINGS[2].curves[0]["diag/held_out/alignment"]]
    assert len(process.axes[2].get_lines()) == 4, "a line a run and side"
    assert process.axes[0].get_ylim() == process.axes[2].get_ylim()
    assert process.axes[3].get_ylim() != process.axes[0].get_ylim()


def test_scores_are_read_at_the_evaluation_of_the_best_step(tmp_path: Path, drawn: list[Figure]) -> None:
    run = {
        "val/stsb/spearman": [(125, 0.7), (250, 0.8), (375, 0.6)],
        "diag/eval/alignment": [(0, 0.9), (125, 0.1), (250, 0.2), (375, 0.3)],
        "diag/eval/uniformity": [(0, -1.0), (125, -2.0), (250, -3.0), (375, -4.0)],
    }
    draw_settings([Setting("NLI.STS", (summarise(run),), (run,))], tmp_path, pretrained_score=0.3173)
    best, process = drawn
    assert coloured(best) == [([-3.0, 0.2], 80.0)]
    assert texts(best) == ["NLI.STS (80.0)", "pretrained (31.7)"]
    white = best.axes[0].collections[-1]
    assert np.asarray(white.get_offsets()).tolist() == [[-1.0, 0.9]]
    assert process.axes[0].get_title() == "NLI.STS"


def test_labels_do_not_cover_each_other(tmp_path: Path, drawn: list[Figure]) -> None:
    generator = random.Random(0)
    summaries = [CurveSummary(generator.gauss(0, 0.1), generator.gauss(0, 0.1), 0.8 + k / 100) for k in range(13)]
    draw_settings([Setting(f"Wiki.setting_{k}", (s,)) for k, s in enumerate(summaries)], tmp_path)
    drawn[0].draw_without_rendering()  # saved, it was measured with other pixels
    boxes = [text.get_window_extent() for text in drawn[0].axes[0].texts]
    assert len(boxes) == 13
    area = sum(box.width * box.height for box in boxes)
    shared = 0.0
    for k, a in enumerate(boxes):
        for b in boxes[:k]:
            shared += max(min(a.x1, b.x1) - max(a.x0, b.x0), 0) * max(min(a.y1, b.y1) - max(a.y0, b.y0), 0)
    assert shared < 0.02 * area
    frame = drawn[0].axes[0].get_window_extent().padded(1)
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)


def test_nothing_to_draw(tmp_path: Path) -> None:
    assert draw_settings([Setting("x", (CurveSummary(),), ({},))], tmp_path / "figures") == []
    assert draw_settings([], tmp_path / "figures") == []
    assert draw_studies(tmp_path / "figures") == []
    assert not (tmp_path / "figures").exists()


def test_the_figures_of_studies(tmp_path: Path, drawn: list[Figure]) -> None:
    rows = {0.0: [77.0, 78.0, 79.0], 1250.0: [79.0, 80.0], 2500.0: [79.25]}
    paths = draw_studies(tmp_path, rows=rows, margin_positive={0.1: [78.0], 0.005: [79.0]}, margin_negative={0.1: [78]})
    assert [path.name for path in paths] == ["llm_rows.png", "margins.png"]
    study, margins = drawn
    (axes,) = study.axes
    assert list(axes.get_lines()[0].get_ydata()) == [78.0, 79.5, 79.25]
    # Pooled over the numbers: squares 2 + 0.5 of 3 degrees of freedom; t(0.975, 3) = 3.182446.
    half = 3.182446 * math.sqrt(2.5 / 3)
    band = axes.collections[0].get_paths()[0].vertices
    at_zero = sorted({float(y) for x, y in band if x == 0})
    assert at_zero == pytest.approx([78 - half / math.sqrt(3), 78 + half / math.sqrt(3)], abs=1e-4)
    assert max(y for x, y in band if x == 2500) == pytest.approx(79.25 + half, abs=1e-4)
    first, second = margins.axes
    assert (first.get_xlabel(), second.get_xlabel()) == ("margin $m_1$", "margin $m_2$")
    assert list(first.get_lines()[0].get_xdata()) == [0.005, 0.1]
    assert not first.collections, "one run each: no interval"
    assert first.get_lines()[1].get_label() == "best: 79.00 at 0.005"


# ----------------------------------------------------------------------------------------------------------- command


@pytest.fixture(scope="module")
def command() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ngcse_figures", EXPERIMENTS.parents[1] / "scripts/ngcse_figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_draws_runs_and_prints_the_tables(
    command: ModuleType, make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [make_run("ngcse_nli_sup", seed) for seed in (0, 1)] + [make_run("ngcse_wiki_dropout", 0)]
    out, kept = tmp_path / "out", tmp_path / "kept"
    command.main(["--records", *map(str, folders), "--out", str(out), "--keep", str(kept)])
    printed = capsys.readouterr().out
    assert "| NLI.SUP | 2 |" in printed
    assert "+0.0745" in printed, "the authors' value"
    assert f"figure: {out / 'best_step.png'}" in printed
    command.main(["--records", str(kept), "--out", str(out)])
    assert capsys.readouterr().out == printed


def test_the_command_draws_a_study(
    command: ModuleType, make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [make_run("ngcse_wiki_sts_ht_final", seed, identity=str(seed)) for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        record |= {"decisive": {"config": {"data": {"n": seed}}}, "metrics": {"test/a": 0.5}}
        (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")
    given = ["--records", *map(str, folders), "--out", str(tmp_path / "out")]
    command.main([*given, "--study", "llm_rows=data.n", "--metric", "test/a"])
    assert capsys.readouterr().out == f"figure: {tmp_path / 'out' / 'llm_rows.png'}\n"
    with pytest.raises(SystemExit):
        command.main([*given, "--study", "rows=data.n", "--metric", "test/a"])
    assert "'rows=data.n' is not one of llm_rows, margin_positive, margin_negative" in capsys.readouterr().err
