"""The papers' numbers agree with each other and with the artefacts that ask for them, and these
with what they run.
"""

import csv
import re
import statistics
from collections import Counter
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from lightning_cse.papers.artefacts import Chosen, Evaluate, Request, Train
from lightning_cse.papers.figures import MAKERS
from lightning_cse.papers.files import find_artefacts
from lightning_cse.papers.points import Point, composed, points_of
from lightning_cse.papers.records import RunsTable

ROOT = Path(__file__).parents[3]
EXPERIMENTS = ROOT / "experiments"
COUNTS = {
    "gausscse": {
        "table1": 36,
        "table2": 36,
        "table3": 102,
        "table4": 68,
        "table5": 48,
    },
    "dualcse": {
        "table2": 25,
        "table4": 10,
        "table5": 8,
        "table6": 6,
        "table7": 90,
        "table8": 16,
        "table9": 32,
    },
    "ngcse": {
        "table1": 112,
        "table2": 80,
        "table3": 3,
        "table4": 104,
        "table5": 3,
        "table6": 8,
        "figure1": 31,
        "figure2": 27,
        "figure5": 27,
    },
}
TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
WITHOUT_NUMBERS = {
    "dualcse/dualgauss",
    "gausscse/figure2",
    "gausscse/triplets",
    "ngcse/figure7",
    "ngcse/methods",
}

Cell = tuple[str, str, str]
"""Row, encoder, column."""


def rows_of(paper, table):
    with (EXPERIMENTS / paper / "published.csv").open(
        encoding="utf-8",
        newline="",
    ) as file:
        return [row for row in csv.DictReader(file) if row["table"] == table]


def printed(paper, table):
    """Return the numbers of a table as they are printed."""
    return {
        (row["row"], row["encoder"], row["column"]): row["value"] for row in rows_of(paper, table)
    }


def lines_of(paper, table):
    """Yield row and encoder with the numbers by column."""
    lines: dict[tuple[str, str], dict[str, float]] = {}
    for (row, encoder, column), value in printed(paper, table).items():
        lines.setdefault((row, encoder), {})[column] = float(value)
    yield from lines.items()


@pytest.fixture(scope="module")
def artefacts():
    return find_artefacts(EXPERIMENTS)


def test_every_number_is_there_once_beside_its_cell(artefacts):
    counts = {
        f"{paper}/{table}": count
        for paper, tables in COUNTS.items()
        for table, count in tables.items()
    }
    assert {key: len(artefacts[key].published) for key in counts} == counts
    for paper, tables in COUNTS.items():
        cells = [cell for table in tables for cell in rows_of(paper, table)]
        assert len(
            {(one["table"], one["row"], one["encoder"], one["column"]) for one in cells}
        ) == len(cells)
    assert (sum(counts.values()), len(artefacts)) == (872, 29)


@pytest.mark.parametrize(
    ("paper", "part", "whole"),
    [
        ("gausscse", "table1", "table3"),
        ("gausscse", "table2", "table4"),
        ("dualcse", "table2", "table7"),
        ("dualcse", "table4", "table8"),
        ("dualcse", "table5", "table9"),
    ],
)
def test_a_short_table_is_a_part_of_its_long_one(paper, part, whole):
    long = printed(paper, whole)
    short = {
        cell: value for cell, value in printed(paper, part).items() if cell[2] != "Avg acc"
    }  # Table 3 has none
    assert short
    assert {cell: long[cell] for cell in short} == short


@pytest.mark.parametrize(
    ("table", "average", "lines"),
    [
        ("1", "Avg acc", 9),
        ("2", "Avg", 9),
        ("4", "Avg", 17),
    ],
)
def test_gausscse_cuts_its_averages_off(table, average, lines):
    found = list(lines_of("gausscse", f"table{table}"))
    assert len(found) == lines
    for line, values in found:
        cents = sum(round(100 * value) for column, value in values.items() if column != average)
        assert cents // 3 == round(100 * values[average]), line


def test_gausscse_chose_the_best_of_its_grid():
    recipe = OmegaConf.load(ROOT / "conf" / "experiment" / "gausscse.yaml").recipe
    best: dict[str, tuple[float, str, str]] = {}
    for (batch_size, encoder, lr), value in printed("gausscse", "table5").items():
        best[encoder] = max(best.get(encoder, (0.0, "", "")), (float(value), batch_size, lr))
    assert sorted(best) == ["bert_base", "bert_large", "roberta_base", "roberta_large"]
    for encoder, (_, batch_size, lr) in best.items():
        chosen = recipe.get(encoder, recipe.default)
        assert (chosen.batch_size, chosen.lr) == (int(batch_size), float(lr)), encoder


def test_dualcse_all_is_the_mean_of_the_four_kinds():
    lines = dict(lines_of("dualcse", "table7"))
    assert len(lines) == 8 + 2 * 5
    for line, values in lines.items():
        kinds = [values[kind] for kind in ("explicit", "implied", "neutral", "contradiction")]
        assert values["RTE all"] == pytest.approx(statistics.fmean(kinds), abs=0.0051), line


@pytest.mark.parametrize("table", ["table7", "table8"])
def test_dualcse_tables_share_the_whole_loss(table):
    ablation, other = printed("dualcse", "table9"), printed("dualcse", table)
    common = ablation.keys() & other.keys()
    assert len(common) == 4
    assert {cell: ablation[cell] for cell in common} == {cell: other[cell] for cell in common}


@pytest.mark.parametrize(
    ("table", "parts", "average", "off"),
    [
        ("table1", STS, "STS Avg", 3),
        ("table2", STS, "STS Avg", 1),
        ("table4", TRANSFER, "transfer Avg", 1),
    ],
)
def test_ngcse_averages_differ_where_the_notes_say(table, parts, average, off):
    notes = {
        (row["row"], row["encoder"]): row["note"]
        for row in rows_of("ngcse", table)
        if row["column"] == average
    }
    told = 0
    for line, values in lines_of("ngcse", table):
        mean = statistics.fmean(values[part] for part in parts)
        note = re.search(r"its cells average (\d+\.\d\d)", notes[line])
        told += note is not None
        want = float(note[1]) if note else values[average]
        assert want == pytest.approx(mean, abs=0.0051), line
        assert note is None or abs(values[average] - mean) > 0.0051
    assert told == off


def test_ngcse_prints_one_model_three_times():
    cell = ("Wiki.STS_HT", "bert_base", "STS Avg")
    assert printed("ngcse", "table1")[cell] == printed("ngcse", "table3")[cell] == "79.79"
    margins = printed("ngcse", "figure5")
    assert (
        margins["m1 0.005", "bert_base", "STS Avg"]
        == margins["m2 0.05", "bert_base", "STS Avg"]
        == "79.79"
    )
    deviations = [
        row["deviation"] for row in rows_of("ngcse", "table1") if row["row"].endswith("STS_HT")
    ]
    assert len(deviations) == 16
    assert all(0 < float(deviation) < 1 for deviation in deviations)


def test_the_figures_have_the_released_summaries():
    with (EXPERIMENTS / "ngcse" / "published_rfd.csv").open(
        encoding="utf-8",
        newline="",
    ) as file:
        released = {row["setting"]: row for row in csv.DictReader(file)}
    columns = {
        "figure1": {
            "RFD_a": ("rfd_alignment", 1),
            "RFD_u": ("rfd_uniformity", 1),
            "score": ("final_score", 100),
        },
        "figure2": {
            "alignment": ("eval_alignment_at_best", 1),
            "uniformity": ("eval_uniformity_at_best", 1),
            "dev": ("best_score", 100),
        },
    }
    checked = 0
    for table, of in columns.items():
        for (row, _, column), value in printed("ngcse", table).items():
            name, scale = of[column]
            digits = len(value.partition(".")[2])
            assert float(value) == pytest.approx(
                scale * float(released[row][name]), abs=0.51 * 10**-digits
            )
            checked += 1
    assert checked == 31 + 27


def test_what_makes_a_figure_or_a_text_exists(artefacts):
    assert {artefact.make for artefact in artefacts.values() if artefact.make} == set(MAKERS)
    assert all(artefact.make for artefact in artefacts.values() if "Figure" in artefact.source)


ADDED = {"STS test", "AUC explicit", "AUC implied"}
"""Columns that no paper prints, of NGCSE's Figure 1 and of RTE."""


def test_every_row_and_column_has_a_number(artefacts):
    """Those without: rows of ours, fits of ours; and settings that no curve is released of."""
    without = set()
    for key, artefact in artefacts.items():
        if key not in WITHOUT_NUMBERS:
            numbers = {(value.row, value.column) for value in artefact.published}
            without |= {
                (key, row.label)
                for row in artefact.rows
                if row.name not in {row for row, _ in numbers}
            }
            assert {column.title for column in artefact.columns} - ADDED == {
                column for _, column in numbers
            }, key
    unreleased = ("Wiki.token_cutoff", "Wiki.NLI", "NLI.token_shuffle", "NLI.STS_HT")
    assert without == {
        ("ngcse/table1", "BERT-whitening (unsup), fitted on STS-B train"),
        ("ngcse/table2", "RoBERTa-whitening (unsup), fitted on STS-B train"),
        *(("ngcse/figure2", row) for row in unreleased),
    }


def test_rte_tables_have_areas_and_simcse_on_inli_the_steps_of_dualcse(artefacts):
    by_key = {
        key: {column.keys[0] for column in artefact.columns} for key, artefact in artefacts.items()
    }
    rte = {
        key
        for key, keys in by_key.items()
        if "test/rte/accuracy_all" in keys and key != "dualcse/table3"
    }
    assert rte == {
        f"dualcse/{name}" for name in ("table2", "table5", "table7", "table9", "dualgauss")
    }
    assert all(by_key[key] >= {"test/rte/auc_explicit", "test/rte/auc_implied"} for key in rte)
    for key in ("dualcse/table2", "dualcse/table7"):
        matched = {row.label: artefacts[key].matched(row.label) for row in artefacts[key].rows}
        assert {label: other for label, other in matched.items() if other} == {
            "SimCSE (INLI)": "DualCSE-Cross"
        }
        assert "steps" in artefacts[key].match


def test_published_checkpoints_are_read_as_their_authors_test_them(artefacts):
    """The supervised ones through their pooler, the unsupervised ones without; whitening on NLI, or
    named.
    """
    rows = [(artefact, row) for artefact in artefacts.values() for row in artefact.rows]
    evaluated = [
        (artefact, row, row.evaluate) for artefact, row in rows if row.evaluate is not None
    ]
    tables = {"sup": set(), "unsup": set()}
    for artefact, row, way in evaluated:
        kind = str(way.model).removeprefix("princeton-nlp/").partition("-simcse")[0]
        if kind in tables:
            assert way.overrides[0] == f"pooling=cls{'_pooler' if kind == 'sup' else ''}", (
                artefact.key,
                row.label,
            )
            assert {value.column for value in artefact.published if value.row == row.name}, (
                "the paper's numbers"
            )
            tables[kind].add(artefact.key)
    quoted = {f"gausscse/table{n}" for n in (1, 3)} | {f"dualcse/table{n}" for n in (2, 7)}
    assert tables["sup"] == quoted | {f"ngcse/table{n}" for n in (1, 2, 4)}
    fits = {
        row.label: one
        for _, row, way in evaluated
        for one in way.overrides
        if one.startswith("whitening")
    }
    assert Counter(fits.values()) == {
        "whitening=[snli/train,mnli/train]": 2,
        "whitening=[stsb/train]": 2,
    }
    assert all(("STS-B train" in label) == ("stsb" in fit) for label, fit in fits.items())


def test_language_models_are_asked_only_where_it_is_allowed(artefacts):
    rows = [(artefact.key, row) for artefact in artefacts.values() for row in artefact.rows]
    asked = {
        (key, row.label)
        for key, row in rows
        if isinstance(row.way, Evaluate) and row.way.model == "llm"
    }
    assert Counter(key for key, _ in asked) == {"dualcse/table2": 1, "dualcse/table7": 8}
    assert {(key, row.label) for key, row in rows if row.needs is not None} == asked
    assert {row.needs.variable for _, row in rows if row.needs is not None} == {
        "LIGHTNING_CSE_ASK_LLMS"
    }


@pytest.mark.parametrize(
    ("profile", "key"),
    # those that add something to an experiment, which tests of the configs compose; Figure 1 is
    # below
    [
        *(
            ("small", key)
            for key in (
                "dualcse/table2",
                "gausscse/table1",
                "ngcse/figure5",
                "ngcse/table4",
                "ngcse/table6",
            )
        ),
        *(("tiny", key) for key in ("gausscse/table5", "ngcse/table4")),
    ],
)
def test_every_point_composes(artefacts, key, profile):
    artefact, request, trained = artefacts[key], Request(profile=profile), set()
    for line in artefact.lines(request):
        for column in artefact.columns:
            points = points_of(
                artefact,
                request,
                line,
                column,
            )
            for point in points[:1] + points[1:][-1:]:  # of a grid the first and the last
                assert composed(point)
                assert point.of is None or composed(point.of)
                trained.add(line.label)
    assert trained >= {row.label for row in artefact.rows if isinstance(row.way, Train | Chosen)}


@pytest.mark.parametrize(
    ("settings", "protocol"), [((), "senteval"), (("transfer.protocol=lbfgs",), "lbfgs")]
)
def test_transfer_is_measured_by_senteval_s_protocol(artefacts, settings, protocol):
    table, found = artefacts["ngcse/table4"], set()
    for request in (Request(settings=settings), Request("small", settings=settings)):
        for line in table.lines(request):
            for point in points_of(
                table,
                request,
                line,
                table.columns[0],
            ):
                found.add((line.label, composed(point)["transfer"]["protocol"]))
    assert (len(found), {used for _, used in found}) == (7, {protocol})
    why = "a logistic regression at its optimum, not SentEval's"
    marks = [column.instead for column in table.columns if column.source == "metric"]
    assert marks == [{f"test/{task.lower()}/accuracy_lbfgs": why} for task in TRANSFER]


def test_the_settings_of_ngcse_are_those_of_its_experiments(artefacts):
    """Tables 5 and 6: what is printed is in the recipes, and in Table 6 a point of its grid."""
    checked = 0
    for table in ("table5", "table6"):
        artefact = artefacts[f"ngcse/{table}"]
        columns = {column.title: column for column in artefact.columns}
        for line in artefact.lines(Request()):
            train = line.way.among[0] if isinstance(line.way, Chosen) else line.way
            assert isinstance(train, Train)
            config = OmegaConf.create(
                composed(Point("train", (f"+experiment={train.experiment}", "encoder=bert_base")))
            )
            for value in artefact.published:
                if value.row == line.name:
                    key = columns[value.column].keys[0]
                    assert OmegaConf.select(config, key) == value.value, f"{line.label}: {key}"
                    if isinstance(line.way, Chosen):
                        tried = {
                            each.partition("=")[2]
                            for way in line.way.among
                            for each in way.overrides
                            if key in each
                        }
                        assert value.value in map(float, tried)
                        assert len(tried) == 3
                    checked += 1
    assert checked == 3 + 8


def test_the_committed_runs_of_figure_1_are_its_points(artefacts, tmp_path):
    kept = EXPERIMENTS / "ngcse" / "results" / "records"
    artefact, request = artefacts["ngcse/figure1"], Request(profile="small")
    index = RunsTable(tmp_path, [kept])
    found: dict[str, set[str]] = {}
    for line in artefact.lines(request):
        (point,) = points_of(
            artefact,
            request,
            line,
            artefact.columns[0],
        )
        runs = [index.find(point, seed) for seed in line.seeds]
        assert isinstance(line.way, Train)
        found[line.way.experiment] = {run.source.name for run in runs if run is not None}
    wanted: dict[str, set[str]] = {}
    for path in kept.glob("*.json"):
        if "_final-" not in path.name:  # Table 3 and Figure 5
            wanted.setdefault(path.name.partition("-")[0], set()).add(path.name)
    assert found == wanted
    assert sum(map(len, found.values())) == 39
