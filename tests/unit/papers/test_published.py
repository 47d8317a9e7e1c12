"""The papers' numbers agree with each other and with the artefacts that ask for them, and these
with what they run.
"""

import re
import statistics
from pathlib import Path

import pandas as pd
import pytest
from omegaconf import OmegaConf

from lightning_cse.papers.artefacts import Request
from lightning_cse.papers.figures import MAKERS
from lightning_cse.papers.files import find_artefacts
from lightning_cse.papers.points import Point, composed, points_of

ROOT = Path(__file__).parents[3]
EXPERIMENTS = ROOT / "experiments"
COUNTS = {"gausscse": 290, "dualcse": 187, "ngcse": 395}
TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
WITHOUT_NUMBERS = {
    "dualcse/dualgauss",
    "encoders/simcse_nli",
    "gausscse/figure2",
    "gausscse/triplets",
    "ngcse/figure7",
    "ngcse/methods",
    "ngcse/patterns",
}


def rows_of(paper, table):
    """Return the numbers of a table as texts, as they are printed."""
    file = EXPERIMENTS / paper / "published.csv"
    rows = pd.read_csv(file, dtype=str, keep_default_na=False)

    return rows[rows["table"] == table]


def printed(paper, table):
    rows = rows_of(paper, table)
    return rows.set_index(["row", "encoder", "column"])["value"].to_dict()


def lines_of(paper, table):
    """Return the numbers by column for each row and encoder."""
    lines = {}
    for (row, encoder, column), value in printed(paper, table).items():
        lines.setdefault((row, encoder), {})[column] = float(value)

    return lines


@pytest.fixture(scope="module")
def artefacts():
    return find_artefacts(EXPERIMENTS)


@pytest.mark.parametrize("paper", COUNTS)
def test_every_number_is_there_once_beside_its_cell(artefacts, paper):
    rows = pd.read_csv(EXPERIMENTS / paper / "published.csv")
    assert len(rows) == COUNTS[paper]
    assert not rows.duplicated(["table", "row", "encoder", "column"]).any()
    for table, numbers in rows.groupby("table"):
        assert len(artefacts[f"{paper}/{table}"].published) == len(numbers)


@pytest.mark.parametrize(
    ("paper", "table", "other", "common"),
    [
        ("gausscse", "table1", "table3", 27),
        ("gausscse", "table2", "table4", 36),
        ("dualcse", "table2", "table7", 25),
        ("dualcse", "table4", "table8", 10),
        ("dualcse", "table5", "table9", 8),
        ("dualcse", "table9", "table7", 4),
        ("dualcse", "table9", "table8", 4),
        ("ngcse", "table1", "table3", 1),
    ],
)
def test_tables_agree_where_they_print_the_same_cell(
    paper,
    table,
    other,
    common,
):
    numbers = printed(paper, table)
    others = printed(paper, other)
    same = numbers.keys() & others.keys()
    assert len(same) == common
    assert {cell: numbers[cell] for cell in same} == {cell: others[cell] for cell in same}


@pytest.mark.parametrize(
    ("table", "average", "lines"),
    [
        ("1", "Avg acc", 9),
        ("2", "Avg", 9),
        ("4", "Avg", 17),
    ],
)
def test_gausscse_cuts_its_averages_off(
    table,
    average,
    lines,
):
    found = lines_of("gausscse", f"table{table}")
    assert len(found) == lines
    for line, values in found.items():
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
    lines = lines_of("dualcse", "table7")
    assert len(lines) == 8 + 2 * 5
    for line, values in lines.items():
        kinds = [values[kind] for kind in ("explicit", "implied", "neutral", "contradiction")]
        assert values["RTE all"] == pytest.approx(statistics.fmean(kinds), abs=0.0051), line


@pytest.mark.parametrize(
    ("table", "parts", "average", "off"),
    [
        ("table1", STS, "STS Avg", 3),
        ("table2", STS, "STS Avg", 1),
        ("table4", TRANSFER, "transfer Avg", 1),
    ],
)
def test_ngcse_averages_differ_where_the_notes_say(
    table,
    parts,
    average,
    off,
):
    rows = rows_of("ngcse", table)
    notes = rows[rows["column"] == average].set_index(["row", "encoder"])["note"]
    explained = 0
    for line, values in lines_of("ngcse", table).items():
        mean = statistics.fmean(values[part] for part in parts)
        note = re.search(r"its cells average (\d+\.\d\d)", notes[line])
        explained += note is not None
        want = float(note[1]) if note else values[average]
        assert want == pytest.approx(mean, abs=0.0051), line

    assert explained == off


@pytest.mark.parametrize(
    ("table", "column", "name", "scale"),
    [
        ("figure1", "RFD_a", "rfd_alignment", 1),
        ("figure1", "RFD_u", "rfd_uniformity", 1),
        ("figure1", "score", "final_score", 100),
        ("figure2", "alignment", "eval_alignment_at_best", 1),
        ("figure2", "uniformity", "eval_uniformity_at_best", 1),
        ("figure2", "dev", "best_score", 100),
    ],
)
def test_the_figures_have_the_released_summaries(
    table,
    column,
    name,
    scale,
):
    file = EXPERIMENTS / "ngcse" / "published_rfd.csv"
    released = pd.read_csv(file).set_index("setting")[name] * scale
    rows = rows_of("ngcse", table)
    values = rows[rows["column"] == column].set_index("row")["value"]
    assert len(values) >= 9
    for row, value in values.items():
        digits = len(value.partition(".")[2])
        assert float(value) == pytest.approx(released[row], abs=0.51 * 10**-digits)


def test_what_makes_a_figure_or_a_text_exists(artefacts):
    assert len(artefacts) == 31
    assert {artefact.make for artefact in artefacts.values() if artefact.make} == set(MAKERS)


SMALL = ("Qwen2.5-Coder-1.5B-Instruct, 4-bit", "Qwen2.5-Coder-0.5B-Instruct, 4-bit")
"""Language models that the papers do not have."""


def test_every_row_and_column_has_a_number(artefacts):
    """Those without: rows of ours, fits of ours, small language models; and settings that no curve
    is released of.
    """
    without = set()
    for key, artefact in artefacts.items():
        if key not in WITHOUT_NUMBERS:
            rows = {value.row for value in artefact.published}
            without |= {(key, row.label) for row in artefact.rows if row.name not in rows}
            columns = {column.title for column in artefact.columns}
            # No paper prints these columns of NGCSE's Figure 1 and of RTE.
            columns -= {"STS test", "AUC explicit", "AUC implied", "no label"}
            assert columns == {value.column for value in artefact.published}, key

    unreleased = ("Wiki.token_cutoff", "Wiki.NLI", "NLI.token_shuffle", "NLI.STS_HT")
    assert without == {
        ("ngcse/table1", "BERT-whitening (unsup), fitted on STS-B train"),
        ("ngcse/table2", "RoBERTa-whitening (unsup), fitted on STS-B train"),
        *(("ngcse/figure2", row) for row in unreleased),
        *((f"dualcse/{table}", row) for table in ("table2", "table7") for row in SMALL),
    }


@pytest.mark.parametrize("key", ["dualcse/table2", "dualcse/table7"])
def test_simcse_on_inli_trains_for_the_steps_of_dualcse(artefacts, key):
    assert artefacts[key].matched("SimCSE (INLI)") == "DualCSE-Cross"


def test_published_checkpoints_are_read_as_their_authors_test_them(artefacts):
    """The supervised ones through their pooler, the unsupervised ones without."""
    poolings = {"sup": "pooling=cls_pooler", "unsup": "pooling=cls"}
    checked = 0
    for artefact in artefacts.values():
        for way in (row.evaluate for row in artefact.rows if row.evaluate is not None):
            kind = str(way.model).removeprefix("princeton-nlp/").partition("-simcse")[0]
            if kind in poolings:
                assert way.overrides[0] == poolings[kind], (artefact.key, way.model)
                checked += 1

    assert checked == 11


def test_language_models_are_asked_only_where_it_is_allowed(artefacts):
    rows = [row for artefact in artefacts.values() for row in artefact.rows]
    asked = [row for row in rows if row.evaluate and row.evaluate.model == "llm"]
    assert len(asked) == 9 + 2 * len(SMALL)
    assert [row for row in rows if row.needs is not None] == asked
    assert {row.needs.variable for row in asked} == {"LIGHTNING_CSE_ASK_LLMS"}


@pytest.mark.parametrize(
    ("profile", "key"),
    # those that add something to an experiment, which tests of the configs compose
    [
        ("small", "dualcse/table2"),
        ("small", "gausscse/table1"),
        ("small", "ngcse/figure5"),
        ("small", "ngcse/table4"),
        ("tiny", "gausscse/table5"),
        ("tiny", "ngcse/table4"),
    ],
)
def test_every_point_composes(
    artefacts,
    key,
    profile,
):
    artefact = artefacts[key]
    request = Request(profile=profile)
    composes = 0
    for line in artefact.lines(request):
        for column in artefact.columns:
            points = points_of(
                artefact,
                request,
                line,
                column,
            )
            for point in {*points[:1], *points[-1:]}:  # of a grid the first and the last
                assert composed(point)
                assert point.of is None or composed(point.of)
                composes += 1

    assert composes


@pytest.mark.parametrize(("table", "count"), [("table5", 3), ("table6", 8)])
def test_the_settings_of_ngcse_are_those_of_its_experiments(
    artefacts,
    table,
    count,
):
    """What is printed is in the recipes, and in Table 6 a point of its grid."""
    artefact = artefacts[f"ngcse/{table}"]
    keys = {column.title: column.keys[0] for column in artefact.columns}
    checked = 0
    for line in artefact.lines(Request()):
        command = (f"+experiment={line.row.experiment}", "encoder=bert_base")
        config = OmegaConf.create(composed(Point("train", command)))
        for value in artefact.published:
            if value.row == line.name:
                key = keys[value.column]
                assert OmegaConf.select(config, key) == value.value, f"{line.label}: {key}"
                assert not line.row.grid or value.value in line.row.grid[key]
                checked += 1

    assert checked == count
