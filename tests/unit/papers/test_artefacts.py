"""Tables and figures as files: what they hold, and what is reported of a file that is wrong."""

from collections.abc import Callable

import pytest

from lightning_cse.config import experiments_dir
from lightning_cse.errors import ConfigError
from lightning_cse.papers.artefacts import (
    Artefact,
    Baseline,
    Chosen,
    Evaluate,
    Needs,
    Profile,
    Published,
    PublishedValue,
    Request,
    Train,
)
from lightning_cse.papers.files import find_artefacts, read_artefact

TABLE = """
title: What the terms contribute
source: DualCSE, Table 5
encoders: [roberta_base, bert_base]
columns:
  RTE: test/rte/accuracy_all
  MNLI: {metric: test/mnli/accuracy, instead: {test/mnli_matched/accuracy: matched dev}}
  Avg: {mean: [RTE, MNLI]}
  dev: {field: best.score, scale: 1, decimals: 4}
  lr: {config: method.optimizer.lr}
  "1e-5": {field: best.score, overrides: [method.optimizer.lr=1e-5]}
rows:
  DualCSE: {experiment: dualcse_cross, overrides: [data.batch_size=32], name: DualCSE-Cross}
  BERT avg: {evaluate: {model: "{encoder}", suite: sts, overrides: [pooling=mean]}}
  hub: {evaluate: {model: a/model, suite: sts}, encoders: [bert_base]}
  words: {evaluate: {model: length, suite: inli}, encoders: []}
  transfer: {experiment: ngcse_wiki_sts_ht, suite: transfer, suite_overrides: [transfer.protocol=senteval], seeds: [7]}
  LENGTH: {baseline: length, of: paid}
  untrained: {baseline: untrained, of: DualCSE, encoders: [bert_base]}
  chosen: {experiment: ngcse_wiki_sts_ht, grid: {method.beta: [0.1, 1], data.drop_last: [true]}, choose: best.score}
  paid: {experiment: dualcse_bi, encoders: [bert_base], needs: {variable: CSE_MAY_ASK, why: it costs money}}
  GPT-4: {published: "asked, not trained"}
  LLM: {published: it is retired}
reference: DualCSE
profiles:
  small: {overrides: [encoder.pooling=cls], seeds: 3, rows: {DualCSE: [data.train_rows=500]}}
note: |
  Below.
"""
NUMBERS = """table,row,encoder,column,value,deviation,note
table5,DualCSE-Cross,roberta_base,RTE,78.14,0.3,
table4,Other,,X,1.0,,
table5,GPT-4,,RTE,90,,asked
table5,LLM,bert_base,RTE,33.3,,
"""

Read = Callable[..., Artefact]


@pytest.fixture
def read(tmp_path):
    """Write and read an artefact ``dualcse/table5``."""
    (tmp_path / "dualcse").mkdir()

    def write_and_read(text=TABLE, numbers=NUMBERS):
        (tmp_path / "dualcse" / "published.csv").write_text(numbers)
        (tmp_path / "dualcse" / "table5.yaml").write_text(text)
        return read_artefact(tmp_path / "dualcse" / "table5.yaml")

    return write_and_read


def test_what_a_file_says(read):
    artefact = read()
    assert (artefact.key, artefact.title, artefact.source, artefact.note) == (
        *("dualcse/table5", "What the terms contribute", "DualCSE, Table 5"),
        "Below.",
    )
    assert (artefact.reference, artefact.test, artefact.make) == ("DualCSE", "mcnemar", None)
    columns = {column.title: column for column in artefact.columns}
    found = {
        title: (column.source, column.keys, column.scale, column.decimals)
        for title, column in columns.items()
    }
    assert found == {
        "RTE": ("metric", ("test/rte/accuracy_all",), 100.0, 2),
        "MNLI": ("metric", ("test/mnli/accuracy",), 100.0, 2),
        "Avg": ("mean", ("RTE", "MNLI"), 1.0, 2),
        "dev": ("field", ("best.score",), 1.0, 4),
        "lr": ("config", ("method.optimizer.lr",), 1.0, 2),
        "1e-5": ("field", ("best.score",), 100.0, 2),
    }
    assert columns["MNLI"].instead == {"test/mnli_matched/accuracy": "matched dev"}
    assert columns["1e-5"].overrides == ("method.optimizer.lr=1e-5",)
    assert artefact.published == (
        PublishedValue(
            "DualCSE-Cross",
            "roberta_base",
            "RTE",
            78.14,
            0.3,
        ),
        PublishedValue(
            "GPT-4",
            None,
            "RTE",
            90.0,
            None,
            "asked",
        ),
        PublishedValue(
            "LLM",
            "bert_base",
            "RTE",
            33.3,
        ),
    )


DUALCSE = Train("dualcse_cross", ("data.batch_size=32",))
GRID = tuple(
    Train("ngcse_wiki_sts_ht", (f"method.beta={beta}", "data.drop_last=true"))
    for beta in ("0.1", "1")
)
SENTEVAL = Evaluate(
    "transfer",
    None,
    Train("ngcse_wiki_sts_ht"),
    ("transfer.protocol=senteval",),
)
HUB = Evaluate("sts", "a/model")
LENGTH = Evaluate("inli", "length")
FIVE, THREE = (0, 1, 2, 3, 4), (0, 1, 2)
BOTH = ("roberta_base", "bert_base")


def of(encoder):
    return Evaluate(
        "sts",
        encoder,
        None,
        ("pooling=mean",),
    )


def test_a_row_is_a_line_for_each_encoder(read):
    found = [
        (line.label, line.encoder, line.paper_encoder, line.way, line.seeds)
        for line in read().lines(Request())
    ]
    assert found == [
        *(("DualCSE", name, name, DUALCSE, FIVE) for name in BOTH),
        *(("BERT avg", name, name, of(name), (0,)) for name in BOTH),
        ("hub", "bert_base", "bert_base", HUB, (0,)),
        ("words", None, None, LENGTH, (0,)),
        *(("transfer", name, name, SENTEVAL, (7,)) for name in BOTH),
        ("LENGTH", None, None, Baseline("length", "paid"), FIVE),
        ("untrained", "bert_base", "bert_base", Baseline("untrained", "DualCSE"), FIVE),
        *(("chosen", name, name, Chosen(GRID, "best.score"), FIVE) for name in BOTH),
        ("paid", "bert_base", "bert_base", Train("dualcse_bi"), FIVE),
        ("GPT-4", None, None, Published("asked, not trained"), FIVE),
        ("LLM", "bert_base", "bert_base", Published("it is retired"), FIVE),
    ]


@pytest.mark.parametrize(
    ("label", "request_", "encoder", "paper", "way", "seeds"),
    [
        ("DualCSE", Request("small"), "minilm_l4", "roberta_base", DUALCSE, THREE),
        ("BERT avg", Request("small"), "minilm_l4", "roberta_base", of("minilm_l4"), (0,)),
        ("words", Request("small"), None, None, LENGTH, (0,)),
        ("transfer", Request("small"), "minilm_l4", "roberta_base", SENTEVAL, THREE),
        ("LENGTH", Request("small"), None, None, Baseline("length", "paid"), THREE),
        (
            "untrained",
            Request("small"),
            "minilm_l4",
            "bert_base",
            Baseline("untrained", "DualCSE"),
            THREE,
        ),
        ("LLM", Request("small"), "bert_base", "bert_base", Published("it is retired"), THREE),
        (
            "DualCSE",
            Request(
                "small",
                "bert_base",
                (5, 6),
            ),
            "bert_base",
            "bert_base",
            DUALCSE,
            (5, 6),
        ),
        (
            "hub",
            Request(
                "small",
                "bert_base",
                (5, 6),
            ),
            "bert_base",
            "bert_base",
            HUB,
            (0,),
        ),
        ("DualCSE", Request("tiny", "bert_large"), "bert_large", "roberta_base", DUALCSE, (0,)),
    ],
)
def test_a_profile_or_an_encoder_replaces_all_encoders(
    read, label, request_, encoder, paper, way, seeds
):
    (line,) = [line for line in read().lines(request_) if line.label == label]
    assert (line.encoder, line.paper_encoder, line.way, line.seeds) == (encoder, paper, way, seeds)
    (hub,) = read().lines(Request("small", only=("hub",)))
    assert isinstance(hub.way, Published), "no encoder replaces a model of its own"


def test_a_baseline_needs_what_its_row_needs(read):
    artefact = read()
    needs = {line.label: line.needs for line in artefact.lines(Request()) if line.needs}
    assert needs == dict.fromkeys(("LENGTH", "paid"), Needs("CSE_MAY_ASK", "it costs money"))


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (
            Request(only=("LENGHT",)),
            r"table5\.yaml: rows: there is no 'LENGHT' - did you mean 'LENGTH'\?",
        ),
        (Request(profile="smal"), r"no profile 'smal' - did you mean 'small'\?"),
        (Request(encoder="bert_bse"), r"no encoder 'bert_bse' - did you mean 'bert_base'\?"),
    ],
)
def test_unknown_names_in_a_request(read, request_, told):
    with pytest.raises(ConfigError, match=told):
        read().lines(request_)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("title: What", "titel: What", r"titel: unknown key - did you mean 'title'\?"),
        ("title: What the terms contribute", "", r"yaml: title: "),
        (
            "reference: DualCSE",
            "reference: DualCES",
            r"reference: .*'DualCES' - did you mean 'DualCSE'\?",
        ),
        (
            "reference: DualCSE",
            "reference: DualCSE\ntest: mcnemer",
            r"test: .*'mcnemar'.* or 'bootstrap'",
        ),
        ("encoders: [roberta_base, bert_base]", "", r"rows\.DualCSE: .*encoders"),
        (
            "dualcse_cross",
            "dualcse_cros",
            r"rows\.DualCSE\.experiment: .*'dualcse_cros' - did you mean",
        ),
        (
            "a/model, suite: sts}",
            "a/model, siute: sts}",
            r"rows\.hub\.evaluate\.siute: unknown .*'suite'",
        ),
        (
            "of: DualCSE,",
            "of: DualCS,",
            r"rows\.untrained\.of .*'DualCS' - did you mean 'DualCSE'\?",
        ),
        ("of: DualCSE,", "of: hub,", r"rows\.untrained\.of .a trained row.: .*'hub'"),
        (
            "baseline: length,",
            "baseline: length, experiment: gausscse,",
            r"rows\.LENGTH: must have one of experiment",
        ),
        (
            "{published: it is",
            "{overrides: [a=b], published: it is",
            r"rows\.LLM: overrides is for rows with exp",
        ),
        (
            "data.batch_size=32",
            "data.batch_size",
            r"rows\.DualCSE\.overrides\.0: 'data.batch_size' is not an override",
        ),
        ("data.batch_size=32", "seed=1", r"rows\.DualCSE\.overrides\.0: 'seed=1' .*use seeds"),
        (
            "mean: [RTE, MNLI]",
            "mean: [RTE, MNL]",
            r"columns\.Avg\.mean: .*'MNL' - did you mean 'MNLI'\?",
        ),
        (
            "field: best.score, scale",
            "feild: best.score, scale",
            r"columns\.dev: must have one of metric, field",
        ),
        (
            "small: {",
            "smal: {",
            r"profiles\.smal: there is no profile 'smal' - did you mean 'small'\?",
        ),
        (
            "rows: {DualCSE:",
            "rows: {DualCES:",
            r"profiles\.small\.rows: .*'DualCES' - did you mean 'DualCSE'\?",
        ),
        ("  LLM: {pub", "  GPT-4: {pub", r"table5\.yaml: .*duplicate key GPT-4"),
        ("title: What", "published: table55\ntitle: What", r"published: .*'table55'"),
    ],
)
def test_faults_name_file_and_key(read, old, new, told):
    assert TABLE.count(old) == 1
    with pytest.raises(ConfigError, match=told) as caught:
        read(TABLE.replace(old, new))
    assert all("/dualcse/" in fault for fault in caught.value.faults)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("table5,DualCSE,roberta_base,RTE,1,,", r"row: .*'DualCSE' - did you mean 'DualCSE-Cross'"),
        ("table5,DualCSE-Cross,bert_large,RTE,1,,", r"encoder: .*'bert_large'"),
        ("table5,DualCSE-Cross,bert_base,RT,1,,", r"column: .*'RT' - did you mean 'RTE'"),
        ("table5,DualCSE-Cross,bert_base,RTE,one,,", r"line 6\.value: "),
        ("table5,DualCSE-Cross,bert_base,RTE,nan,,", r"line 6\.value: .*finite"),
    ],
)
def test_faults_in_published_numbers_name_the_line(read, line, told):
    with pytest.raises(ConfigError, match=rf"table5\.yaml: published.*{told}"):
        read(numbers=f"{NUMBERS}{line}\n")


def test_a_part_of_another_table(read):
    """Base-size rows of a table in the appendix: its other rows, encoders and columns are no
    faults.
    """
    numbers = (
        NUMBERS
        + "table9,DualCSE-Cross,bert_base,RTE,70,,\ntable9,DualCSE-Cross,bert_large,RTE,71,,\n"
    )
    artefact = read(
        f"published: table9{TABLE}", f"{numbers}table9,Else,,RTE,1,,\ntable9,GPT-4,,Else,1,,\n"
    )
    assert [value.value for value in artefact.published] == [70.0]


def test_what_the_files_of_a_folder_share(read, tmp_path):
    small = "small: {overrides: [diag.sentences=9], seeds: 2, rows: {DualCSE: [data.train_rows=7], other: [x=1]}}"
    (tmp_path / "dualcse" / "profiles.yaml").write_text(small)
    shared, own = TABLE.replace("small: {", "laptop: {"), read()
    assert read(shared).profiles["small"] == Profile(
        ("diag.sentences=9",),
        (0, 1),
        {"DualCSE": ("data.train_rows=7",)},
    )
    assert read(shared).profiles["laptop"] == own.profiles["small"], (
        "what the file names itself is its own"
    )
    assert read(shared + "seeds: [5]\n").profiles["small"].seeds is None, "a list of seeds stays"
    assert find_artefacts(tmp_path).keys() == {"dualcse/table5"}
    (tmp_path / "dualcse" / "profiles.yaml").write_text("smal: {}")
    with pytest.raises(ConfigError, match="did you mean 'small'"):
        read(shared)


def test_rows_are_asked_of_the_artefacts_that_have_them():
    table2, table5 = (
        find_artefacts(experiments_dir())[f"dualcse/{name}"] for name in ("table2", "table5")
    )

    def asked(*labels):
        requests = (Request(only=labels).within(one, (table2, table5)) for one in (table2, table5))
        return [None if request is None else request.only for request in requests]

    assert asked() == [(), ()]
    assert asked("DualCSE-Cross", "DualCSE-Bi") == [
        ("DualCSE-Cross", "DualCSE-Bi"),
        ("DualCSE-Cross",),
    ]
    assert asked("DualCSE-Bi") == [("DualCSE-Bi",), None]
    with pytest.raises(ConfigError, match="there is no 'DualCSE-By' - did you mean 'DualCSE-Bi'"):
        table2.lines(Request(only=asked("DualCSE-By")[0] or ()))


def test_the_papers_own_artefacts_are_right():
    artefacts = find_artefacts(experiments_dir())
    files = [file for file in experiments_dir().glob("*/*.yaml") if file.name != "profiles.yaml"]
    assert len(artefacts) == len(files) >= 26
    names = [name for name in artefacts if name.startswith("ngcse/")]
    assert names == [
        f"ngcse/{name}" for name in sorted(name.removeprefix("ngcse/") for name in names)
    ]
    for artefact in artefacts.values():
        for profile in (None, "small", "laptop", "tiny"):
            assert artefact.lines(Request(profile=profile)) or not artefact.rows
