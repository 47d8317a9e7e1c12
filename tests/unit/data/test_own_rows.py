"""Which experiments a file fits, and what its rows become for them: one scheme per layout."""

import functools

import pytest
import torch
from data_modules import Words, data_module, ids_of

from lightning_cse.data import OwnRows
from lightning_cse.data.columns import LAYOUTS
from lightning_cse.engine.build import built
from lightning_cse.errors import ConfigError, DataError

ROWS = 12
CSE = ("anchor", "positive", "negative")
TRIPLET = ("premise", "entailment", "contradiction")
LABELS = ("entailment", "neutral", "contradiction")

FITS = {
    "sentences": "simcse_unsup promptbert consert infocse ngcse_nli_dropout",
    "pairs": "simcse_sup simcse_unsup gausscse_ent ngcse_nli_sup",
    "sentence pairs": "simcse_sup gausscse_ent",
    "triplets": "simcse_sup simcse_inli gausscse ngcse_nli_sup ngcse_nli_nli ngcse_wiki_dropout",
    "NLI triplets": "simcse_sup gausscse ngcse_nli_sup",
    "labelled pairs": "simcse_sup simcse_unsup gausscse gausscse_ent ngcse_nli_dropout sbert",
    "scored": "sbert_regression dino claif",
    "scored triplets": "clhaif simcse_sup gausscse",
    "LLM rows": "ngcse_wiki_sts ngcse_nli_sts_ht ngcse_nli_nli simcse_sup gausscse",
    "INLI": "dualcse_cross dualcse_bi dualgauss simcse_inli gausscse impscore impscore_inli",
    "implicit pairs": "impscore impscore_inli",
    "several negatives": "simcse_sup gausscse ngcse_nli_sup",
}
"""The experiments that each layout fits."""


def put_csv(path, columns, empty=()):
    """Write rows whose cells say where they are; the cells of some columns are empty in every other
    row, and scores are numbers.
    """
    lines = [",".join(columns)]

    for row in range(ROWS):
        cells = {name: f"{name} {row}" for name in columns} | {"score": f"{row / 11}"}
        if row % 2:
            cells |= dict.fromkeys(empty, "")

        lines.append(",".join(map(cells.get, columns)))

    path.write_text("\n".join(lines), encoding="utf-8")

    return str(path)


def put_labelled(path, labels=LABELS):
    lines = ["premise,hypothesis,label"]
    lines += [f"premise {row},{label} {row},{label}" for row in range(ROWS) for label in labels]
    path.write_text("\n".join(lines), encoding="utf-8")

    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a file of every layout; pairs are those without their optional column."""
    folder = tmp_path_factory.mktemp("files")
    columns = {name: required + optional for name, (required, optional) in LAYOUTS.items()}
    columns["scored"] = columns["sentence pairs"]
    columns |= {"pairs": CSE[:2], "sentence pairs": ("sentence1", "sentence2")}
    columns["several negatives"] = (*CSE, "negative_2")
    layouts = {
        name: put_csv(folder / f"{name}.csv", names, empty=["negative_2"])
        for name, names in columns.items()
    }
    layouts["labelled pairs"] = put_labelled(folder / "labelled pairs.csv")

    return layouts


@pytest.fixture(scope="module")
def method_of(compose):
    """Return the method of an experiment, with a tiny encoder."""

    @functools.cache
    def build(name):
        cfg = compose(f"+experiment={name}", "+debug=tiny", "encoder.layers=1")
        return built(cfg.method, encoder=built(cfg.encoder))

    return build


def data(train, method=None, **options):
    """Return the data of a method; a fifth is held out unless the options say otherwise."""
    if method is not None:
        options |= {"roles": method.roles, "optional": method.optional}

    if "held_out" not in options:
        options.setdefault("held_out_share", 0.2)

    return data_module(train, **{"rows": OwnRows(), "batch_size": 4} | options)


@pytest.mark.slow
@pytest.mark.parametrize("layout", FITS)
def test_experiments_that_a_layout_fits(files, method_of, layout, adds_up):
    for name in FITS[layout].split():
        method = method_of(name)
        fitted = data(files[layout], method)

        assert adds_up(fitted.counts)
        assert fitted.counts["read"] == ROWS * (3 if layout == "labelled pairs" else 1)

        tokens = next(iter(fitted.train_dataloader()))["roles"]

        assert tuple(tokens) == method.roles

        for role in set(method.roles).difference(method.optional):
            assert len(tokens[role]) >= 4


@pytest.mark.parametrize(
    ("layouts", "experiment", "options", "message"),
    [
        ("pairs", "gausscse", {}, "trains on .*; missing: contradiction"),
        ("INLI pairs", "simcse_sup", {}, r"data\.train: files of these layouts .* has premise"),
        ("triplets pairs", "gausscse", {}, r"pairs\.csv:2: no contradiction, .*12 of "),
        ("triplets pairs", "simcse_sup", {"llm_rows": 3}, r"data\.llm_rows: must be null"),
        ("scored", "simcse_sup", {}, "are a test set .*{anchor: sentence1, positive: sentence2}"),
        ("pairs", "sbert", {}, "no column 'label'; found: anchor, positive"),
        ("unscored", "sbert_regression", {}, "no column 'score'; found: sentence1, sent"),
    ],
)
def test_files_that_are_refused(files, method_of, layouts, experiment, options, message):
    names = {"labelled": "labelled pairs", "unscored": "sentence pairs"}
    train = [files[names.get(layout, layout)] for layout in layouts.split()]

    with pytest.raises((ConfigError, DataError), match=message):
        data(train, method_of(experiment), held_out=files["triplets"], **options)


def test_labelled_pairs_without_contradictions_are_pairs(tmp_path, method_of):
    path = put_labelled(tmp_path / "x.csv", LABELS[:2])
    pairs = data(path, method_of("gausscse_ent"))

    assert pairs.counts["dropped: label neutral"] == ROWS
    assert pairs.roles == TRIPLET[:2]

    path = put_labelled(tmp_path / "y.csv")

    assert data(path, method_of("gausscse_ent")).roles == TRIPLET

    entailed = data(path, method_of("simcse_sup"), rows=OwnRows(contradiction=False))

    assert entailed.counts["dropped: label contradiction"] == ROWS

    premises = data(path, method_of("simcse_unsup"), held_out_share=0)

    assert premises.counts["dropped: repeated sentence"] == 2 * ROWS


def test_labels_and_scores_reach_the_batch(files, method_of):
    labelled = data(files["labelled pairs"], method_of("sbert"), held_out=files["labelled pairs"])
    batch = labelled.collate(torch.tensor([5, 0, 3]))

    assert batch["targets"].tolist() == [2, 0, 0]  # three rows of a premise, one for each label
    assert batch["targets"].dtype == torch.int64

    rows = OwnRows(scores=(0, 2))
    scored = data(
        files["scored"], method_of("sbert_regression"), held_out=files["scored"], rows=rows
    )
    batch = scored.collate(torch.tensor([11, 0]))

    assert batch["targets"].tolist() == [0.5, 0.0]
    assert batch["targets"].dtype == torch.float32


# Several hard negatives, or none


def test_pairs_train_without_negatives(files, method_of, caplog):
    pairs = data(files["pairs"], method_of("simcse_sup"))

    assert [len(batch["roles"]["negative"]) for batch in pairs.train_dataloader()] == [0, 0, 0]
    assert "none of 10 training rows has a sentence of negative" in caplog.text


def test_all_hard_negatives_are_in_the_batch(files, method_of):
    path = files["several negatives"]
    several = data(path, method_of("simcse_sup"), held_out=path)
    roles = several.collate(torch.tensor([3, 2, 0]))["roles"]

    assert roles["anchor"].rows.tolist() == [0, 1, 2]
    assert roles["negative"].rows.tolist() == [0, 1, 2, 1, 2]

    want = ["negative 3", "negative 2", "negative 0", "negative_2 2", "negative_2 0"]

    assert ids_of(roles["negative"]) == Words()(want)
