"""The papers' numbers agree with each other and with the specs that ask for them, and these
with what they run.
"""

from pathlib import Path

import pandas as pd
import pytest
from omegaconf import OmegaConf

from lightning_cse.tables.figures import maker
from lightning_cse.tables.files import find_specs
from lightning_cse.tables.points import Point, composed, points_of
from lightning_cse.tables.spec import Request

ROOT = Path(__file__).parents[3]
EXPERIMENTS = ROOT / "experiments"
COUNTS = {"gausscse": 290, "dualcse": 187, "ngcse": 395}
STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
WITHOUT_NUMBERS = {
    "dualcse/dualgauss",
    "dualcse/gap",
    "dualcse/retrieval",
    "encoders/simcse_nli",
    "gausscse/figure2",
    "gausscse/triplets",
    "ngcse/base_size",
    "ngcse/before_training",
    "ngcse/figure7",
    "ngcse/methods",
    "ngcse/negatives",
    "ngcse/patterns",
    "ngcse/systems",
    "ngcse/transfer",
}


@pytest.fixture(scope="module")
def specs():
    return find_specs(EXPERIMENTS)


@pytest.mark.parametrize("paper", COUNTS)
def test_every_number_is_there_once_beside_its_cell(specs, paper):
    rows = pd.read_csv(EXPERIMENTS / paper / "published.csv")
    assert len(rows) == COUNTS[paper]
    assert not rows.duplicated(["table", "row", "encoder", "column"]).any()
    for table, numbers in rows.groupby("table"):
        assert len(specs[f"{paper}/{table}"].published) == len(numbers)


def test_what_makes_a_figure_or_a_text_exists(specs):
    assert all(callable(maker(spec)) for spec in specs.values() if spec.make)


SMALL = ("Qwen2.5-Coder-1.5B-Instruct, 4-bit", "Qwen2.5-Coder-0.5B-Instruct, 4-bit")
"""Language models that the papers do not have."""


def test_every_row_and_column_has_a_number(specs):
    """Those without: rows of ours, fits of ours, small language models; and settings that no curve
    is released of.
    """
    without = set()
    for key, spec in specs.items():
        if key not in WITHOUT_NUMBERS:
            rows = {*spec.published["row"]}
            without |= {(key, row.label) for row in spec.rows if row.name not in rows}
            columns = {column.title for column in spec.columns}
            # No paper prints these columns of NGCSE's Figure 1 and of RTE.
            columns -= {"STS test", "AUC explicit", "AUC implied", "no label"}
            if key in ("ngcse/table3", "ngcse/figure5"):  # the paper prints their mean alone
                columns -= {*STS}

            assert columns == {*spec.published["column"]}, key

    unreleased = ("Wiki.token_cutoff", "Wiki.NLI", "NLI.token_shuffle", "NLI.STS_HT")
    assert without == {
        ("ngcse/table1", "BERT-whitening (unsup), fitted on STS-B train"),
        ("ngcse/table2", "RoBERTa-whitening (unsup), fitted on STS-B train"),
        ("dualcse/table2", "SimCSE (INLI), equal epochs"),
        *(("ngcse/figure2", row) for row in unreleased),
        *((f"dualcse/{table}", row) for table in ("table2", "table7") for row in SMALL),
    }


@pytest.mark.parametrize("key", ["dualcse/table2", "dualcse/table7"])
def test_simcse_on_inli_trains_for_the_steps_of_dualcse(specs, key):
    assert specs[key].matched("SimCSE (INLI)") == "DualCSE-Cross"


def test_published_checkpoints_are_read_as_their_authors_test_them(specs):
    """The supervised ones through their pooler, the unsupervised ones without."""
    poolings = {"sup": "pooling=cls_pooler", "unsup": "pooling=cls"}
    checked = 0
    for spec in specs.values():
        for source in (row.evaluate for row in spec.rows if row.evaluate is not None):
            suite = str(source.model).removeprefix("princeton-nlp/").partition("-simcse")[0]
            if suite in poolings:
                assert source.overrides[0] == poolings[suite], (spec.key, source.model)
                checked += 1

    assert checked == 11


def test_language_models_are_asked_only_where_it_is_allowed(specs):
    rows = [row for spec in specs.values() for row in spec.rows]
    rows_asked = [row for row in rows if row.evaluate and row.evaluate.model == "llm"]
    assert len(rows_asked) == 9 + 2 * len(SMALL)
    assert [row for row in rows if row.needs is not None] == rows_asked
    assert {row.needs.variable for row in rows_asked} == {"LIGHTNING_CSE_ASK_LLMS"}


@pytest.mark.slow
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
def test_every_point_composes(specs, key, profile):
    spec = specs[key]
    request = Request(profile=profile)
    composes = 0
    for line in spec.lines(request).itertuples():
        for column in spec.columns:
            points = points_of(spec, request, line, column)
            for point in {*points[:1], *points[-1:]}:  # of a grid the first and the last
                assert composed(point)
                assert point.of is None or composed(point.of)
                composes += 1

    assert composes


@pytest.mark.parametrize(("table", "count"), [("table5", 3), ("table6", 8)])
def test_the_settings_of_ngcse_are_those_of_its_experiments(specs, table, count):
    """What is printed is in the recipes, and in Table 6 a point of its grid."""
    spec = specs[f"ngcse/{table}"]
    keys = {column.title: column.keys[0] for column in spec.columns}
    checked = 0
    for line in spec.lines(Request()).itertuples():
        command = (f"+experiment={line.experiment}", "encoder=bert_base")
        config = OmegaConf.create(composed(Point("train", command)))
        for value in spec.published.itertuples():
            if value.row == line.name:
                key = keys[value.column]
                assert OmegaConf.select(config, key) == value.value, f"{line.label}: {key}"
                assert not line.grid or value.value in line.grid[key]
                checked += 1

    assert checked == count
