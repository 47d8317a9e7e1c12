"""Tables and figures as files: what they say, and what is told of a file that says it wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_cse.config import experiments_dir
from lightning_cse.errors import ConfigError
from lightning_cse.papers.artefacts import (
    Artefact,
    Baseline,
    Chosen,
    Evaluate,
    Needs,
    Published,
    PublishedValue,
    Request,
    Train,
    find_artefacts,
    natural,
    profile_encoder,
    profile_override,
    read_artefact,
)

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
  transfer: {experiment: ngcse_wiki_sts_ht, suite: transfer, suite_overrides: [transfer.protocol=senteval], seeds: [7]}
  LENGTH: {baseline: length, of: DualCSE}
  untrained: {baseline: untrained, of: DualCSE, encoders: [bert_base]}
  chosen: {experiment: ngcse_wiki_sts_ht, grid: {method.beta: [0.1, 1], data.drop_last: [true]}, choose: best.score}
  GPT-4: {published: "asked, not trained"}
  LLM: {published: it is not to be had}
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


class Paper:
    """A folder ``dualcse`` with an artefact ``table5`` and numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "dualcse"
        self.folder.mkdir()

    def table(self, text: str = TABLE, numbers: str = NUMBERS, name: str = "table5") -> Path:
        (self.folder / "published.csv").write_text(numbers, encoding="utf-8")
        path = self.folder / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    def read(self, text: str = TABLE, numbers: str = NUMBERS) -> Artefact:
        return read_artefact(self.table(text, numbers))


@pytest.fixture
def paper(tmp_path: Path) -> Paper:
    return Paper(tmp_path)


def lines(artefact: Artefact, **request: object) -> dict[tuple[str, str | None], object]:
    """The ways by label and encoder."""
    return {(line.label, line.encoder): line.way for line in artefact.lines(Request(**request))}  # type: ignore[arg-type]


def test_what_a_file_says(paper: Paper) -> None:
    artefact = paper.read()
    assert (artefact.key, artefact.title, artefact.source) == (
        "dualcse/table5",
        "What the terms contribute",
        "DualCSE, Table 5",
    )
    assert (artefact.kind, artefact.reference, artefact.test, artefact.make) == ("table", "DualCSE", "mcnemar", None)
    assert artefact.note == "Below."
    columns = {column.title: column for column in artefact.columns}
    assert (columns["RTE"].source, columns["RTE"].keys) == ("metric", ("test/rte/accuracy_all",))
    assert (columns["RTE"].scale, columns["RTE"].decimals) == (100.0, 2)
    assert columns["MNLI"].instead == {"test/mnli_matched/accuracy": "matched dev"}
    assert (columns["Avg"].source, columns["Avg"].keys, columns["Avg"].scale) == ("mean", ("RTE", "MNLI"), 1.0)
    assert (columns["dev"].keys, columns["dev"].scale, columns["dev"].decimals) == (("best.score",), 1.0, 4)
    assert (columns["lr"].source, columns["lr"].keys) == ("config", ("method.optimizer.lr",))
    assert columns["1e-5"].overrides == ("method.optimizer.lr=1e-5",)
    assert artefact.published == (
        PublishedValue("DualCSE-Cross", "roberta_base", "RTE", 78.14, 0.3),
        PublishedValue("GPT-4", None, "RTE", 90.0, None, "asked"),
        PublishedValue("LLM", "bert_base", "RTE", 33.3),
    )
    assert hash(artefact) == hash(paper.read())


def test_rows_are_repeated_by_encoder(paper: Paper) -> None:
    grid = tuple(Train("ngcse_wiki_sts_ht", (f"method.beta={beta}", "data.drop_last=true")) for beta in ("0.1", "1"))
    senteval = Evaluate("transfer", None, Train("ngcse_wiki_sts_ht"), ("transfer.protocol=senteval",))
    dualcse = Train("dualcse_cross", ("data.batch_size=32",))
    assert lines(paper.read()) == {
        ("DualCSE", "roberta_base"): dualcse,
        ("DualCSE", "bert_base"): dualcse,
        ("BERT avg", "roberta_base"): Evaluate("sts", "roberta_base", None, ("pooling=mean",)),
        ("BERT avg", "bert_base"): Evaluate("sts", "bert_base", None, ("pooling=mean",)),
        ("hub", "bert_base"): Evaluate("sts", "a/model"),
        ("transfer", "roberta_base"): senteval,
        ("transfer", "bert_base"): senteval,
        ("LENGTH", None): Baseline("length", "DualCSE"),
        ("untrained", "bert_base"): Baseline("untrained", "DualCSE"),
        ("chosen", "roberta_base"): Chosen(grid, "best.score"),
        ("chosen", "bert_base"): Chosen(grid, "best.score"),
        ("GPT-4", None): Published("asked, not trained"),
        ("LLM", "bert_base"): Published("it is not to be had"),
    }


def test_a_model_without_an_encoder_is_one_line_under_every_profile(paper: Paper) -> None:
    artefact = paper.read(
        TABLE.replace(
            "  LLM: {published", "  length: {evaluate: {model: length, suite: inli}, encoders: []}\n  LLM: {published"
        )
    )
    way = Evaluate("inli", "length", None, ())
    for request in ({}, {"profile": "small"}, {"encoder": "bert_large"}):
        assert lines(artefact, only=("length",), **request) == {("length", None): way}


ASKED = """
  asked:
    evaluate: {model: llm, suite: inli}
    encoders: []
    needs: {variable: CSE_MAY_ASK, why: a paid model is asked}
"""


def test_a_row_that_needs_a_variable_reads_the_same_with_and_without_it(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TABLE.replace("\nreference", ASKED + "reference")
    monkeypatch.delenv("CSE_MAY_ASK", raising=False)
    without = paper.read(text)
    (line,) = without.lines(Request(only=("asked",)))
    assert line.way == Evaluate("inli", "llm", None, ())
    assert line.needs == Needs("CSE_MAY_ASK", "a paid model is asked")
    assert str(line.needs) == "a paid model is asked; CSE_MAY_ASK=1 in the environment runs it"
    assert {one.label for one in without.lines(Request()) if one.needs} == {"asked"}
    monkeypatch.setenv("CSE_MAY_ASK", "1")
    assert paper.read(text) == without


def test_a_baseline_of_a_row_that_needs_a_variable_needs_it_too(paper: Paper) -> None:
    text = TABLE.replace(
        "  DualCSE: {experiment: dualcse_cross", "  DualCSE: {needs: {variable: A, why: b}, experiment: dualcse_cross"
    )
    assert text != TABLE
    needs = {line.label: line.needs for line in paper.read(text).lines(Request())}
    assert {label for label, one in needs.items() if one == Needs("A", "b")} == {"DualCSE", "LENGTH", "untrained"}


@pytest.mark.parametrize(
    ("needs", "fault"),
    [
        ("{variable: A}", "rows.asked.needs.why: None is no text"),
        ("{why: b}", "rows.asked.needs.variable: None is no text"),
        ("{variable: A B, why: c}", "rows.asked.needs.variable: 'A B' is no name of a variable"),
        ("{variables: A, why: b}", "rows.asked.needs.variables: unknown key - did you mean 'variable'?"),
        ("A", "rows.asked.needs: 'A' is no mapping"),
    ],
)
def test_needs_that_say_nothing_are_refused(paper: Paper, needs: str, fault: str) -> None:
    asked = ASKED.replace("{variable: CSE_MAY_ASK, why: a paid model is asked}", needs)
    with pytest.raises(ConfigError) as refused:
        paper.read(TABLE.replace("\nreference", asked + "reference"))
    assert any(fault in one for one in refused.value.faults), refused.value.faults


def test_what_is_only_published_needs_nothing(paper: Paper) -> None:
    asked = ASKED.replace("evaluate: {model: llm, suite: inli}", "published: it is not to be had")
    with pytest.raises(ConfigError, match="nothing is run of a row that is only published"):
        paper.read(TABLE.replace("\nreference", asked.replace("    encoders: []\n", "") + "reference"))


def test_a_profile_stands_for_all_encoders(paper: Paper) -> None:
    found = paper.read().lines(Request(profile="small"))
    told = {line.label: (line.encoder, line.paper_encoder) for line in found}
    assert len(told) == len(found), "one line a row"
    assert told["DualCSE"] == told["BERT avg"] == told["chosen"] == ("minilm_l6", "roberta_base")
    assert told["untrained"] == ("minilm_l6", "bert_base")
    assert told["LENGTH"] == told["GPT-4"] == (None, None)
    assert told["LLM"] == ("bert_base", "bert_base"), "what is only published stays the paper's"
    ways = {line.label: line.way for line in found}
    assert ways["BERT avg"] == Evaluate("sts", "minilm_l6", None, ("pooling=mean",))
    assert isinstance(ways["hub"], Published), "no encoder stands for a model of its own"
    assert told["hub"] == ("bert_base", "bert_base")


def test_an_encoder_of_the_file_keeps_its_published_values(paper: Paper) -> None:
    artefact = paper.read()
    of_file = {line.label: line for line in artefact.lines(Request(encoder="bert_base"))}
    assert (of_file["DualCSE"].encoder, of_file["DualCSE"].paper_encoder) == ("bert_base", "bert_base")
    assert of_file["hub"].way == Evaluate("sts", "a/model")
    other = {line.label: line for line in artefact.lines(Request(encoder="bert_large", profile="small"))}
    assert (other["DualCSE"].encoder, other["DualCSE"].paper_encoder) == ("bert_large", "roberta_base")


def test_seeds(paper: Paper) -> None:
    artefact = paper.read()

    def seeds(**request: object) -> dict[str, tuple[int, ...]]:
        return {line.label: line.seeds for line in artefact.lines(Request(**request))}  # type: ignore[arg-type]

    of_file = seeds()
    assert of_file["DualCSE"] == of_file["LENGTH"] == (0, 1, 2, 3, 4)
    assert of_file["transfer"] == (7,)
    assert of_file["BERT avg"] == (0,), "nothing is drawn in evaluating a model"
    small = seeds(profile="small")
    assert small["DualCSE"] == small["transfer"] == small["LENGTH"] == (0, 1, 2)
    assert seeds(profile="tiny")["DualCSE"] == (0,)
    asked = seeds(profile="small", seeds=(5, 6))
    assert asked["DualCSE"] == asked["transfer"] == (5, 6)
    assert asked["BERT avg"] == (0,)


def test_only_some_rows(paper: Paper) -> None:
    artefact = paper.read()
    assert [line.label for line in artefact.lines(Request(profile="small", only=("LENGTH", "hub")))] == [
        "hub",
        "LENGTH",
    ]
    with pytest.raises(ConfigError, match=r"table5\.yaml: there is no row 'LENGHT' - did you mean 'LENGTH'\?"):
        artefact.lines(Request(only=("LENGHT",)))


def test_unknown_profiles_and_encoders(paper: Paper) -> None:
    with pytest.raises(ConfigError, match=r"no profile 'smal' - did you mean 'small'\?"):
        paper.read().lines(Request(profile="smal"))
    with pytest.raises(ConfigError, match=r"no encoder 'bert_bse' - did you mean 'bert_base'\?"):
        paper.read().lines(Request(encoder="bert_bse"))


def test_profiles_are_read_from_the_configs() -> None:
    assert [profile_override(name) for name in ("small", "gpu", "tiny")] == [
        "+profile=small",
        "+profile=gpu",
        "+debug=tiny",
    ]
    assert [profile_encoder(name) for name in ("small", "laptop", "tiny", "gpu")] == [
        "minilm_l6",
        "minilm_l6",
        "tiny",
        None,
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("title: What", "titel: What", r"titel: unknown key - did you mean 'title'\?"),
        ("title: What the terms contribute", "", r"yaml: title: missing"),
        (
            "reference: DualCSE",
            "reference: DualCES",
            r"reference: there is no row 'DualCES' - did you mean 'DualCSE'\?",
        ),
        ("reference: DualCSE", "test: mcnemar", r"test: against which row\?"),
        (
            "reference: DualCSE",
            "reference: DualCSE\ntest: mcnemer",
            r"test: 'mcnemer' is not one of mcnemar, bootstrap",
        ),
        ("reference: DualCSE", "kind: figure", r"make: a figure names the function"),
        ("reference: DualCSE", "kind: fig", r"kind: 'fig' is not one of table, figure, text"),
        ("bert_base]\ncol", "bert_bse]\ncol", r"encoders: there is no encoder 'bert_bse' - did you mean 'bert_base'\?"),
        ("encoders: [roberta_base, bert_base]", "", r"rows\.DualCSE: with which encoder\?"),
        (
            "dualcse_cross",
            "dualcse_cros",
            r"rows\.DualCSE\.experiment: there is no experiment 'dualcse_cros' - did you",
        ),
        ("suite: transfer,", "suite: transfr,", r"rows\.transfer\.suite: there is no suite 'transfr' - did you mean"),
        ("suite: sts}", "suite: st}", r"rows\.hub\.evaluate\.suite: there is no suite 'st'"),
        ("suite: sts}", "siute: sts}", r"rows\.hub\.evaluate\.siute: unknown key - did you mean 'suite'\?"),
        ("of: DualCSE}", "of: DualCS}", r"rows\.LENGTH\.of: there is no row 'DualCS' - did you mean 'DualCSE'\?"),
        ("length, of: DualCSE}", "length, of: hub}", r"rows\.LENGTH\.of: the row 'hub' is no training run"),
        ("baseline: length,", "baseline: length, experiment: gausscse,", r"rows\.LENGTH: how is it obtained\?"),
        (", choose: best.score", "", r"rows\.chosen: grid and choose go together"),
        ("beta: [0.1, 1]", "beta: 0.1", r"rows\.chosen\.grid\.method\.beta: 0\.1 is no list"),
        ("data.batch_size=32", "data.batch_size", r"rows\.DualCSE\.overrides: 'data.batch_size' is no override"),
        ("data.batch_size=32", "seed=1", r"rows\.DualCSE\.overrides: 'seed=1': seeds are chosen with seeds"),
        ("data.batch_size=32", "+profile=small", r"'\+profile=small': what is run decides that"),
        ("seeds: [7]", "seeds: [7, 7]", r"rows\.transfer\.seeds: \[7, 7\] is neither a number of seeds nor a list"),
        ("seeds: [7]", "seeds: true", r"rows\.transfer\.seeds: True is neither"),
        (
            "mean: [RTE, MNLI]",
            "mean: [RTE, MNL]",
            r"columns\.Avg\.mean: there is no column 'MNL' - did you mean 'MNLI'\?",
        ),
        ("mean: [RTE, MNLI]", "mean: [RTE, lr]", r"columns\.Avg\.mean: 'lr' holds no measured value"),
        ("field: best.score, scale", "feild: best.score, scale", r"columns\.dev\.feild: unknown key - did you mean"),
        ("field: best.score, scale", "field: a, metric: test/b, scale", r"columns\.dev: where is the value\?"),
        ("decimals: 4", "decimals: many", r"columns\.dev\.decimals: 'many' is no number of digits"),
        ("RTE: test/rte", "RTE: tset/rte", r"columns\.RTE: 'tset/rte/accuracy_all' is no metric of a record"),
        ("small: {", "smal: {", r"profiles\.smal: there is no profile 'smal' - did you mean 'small'\?"),
        ("rows: {DualCSE:", "rows: {DualCES:", r"profiles\.small\.rows\.DualCES: there is no such row - did you mean"),
        ("  LLM: {pub", "  GPT-4: {pub", r"table5\.yaml: .*duplicate key GPT-4"),
        ("title: What", "published: table55\ntitle: What", r"published: .*published\.csv has no table 'table55'"),
    ],
)
def test_faults_name_file_and_key(paper: Paper, old: str, new: str, told: str) -> None:
    assert TABLE.count(old) == 1
    with pytest.raises(ConfigError, match=told) as caught:
        paper.read(TABLE.replace(old, new))
    assert all(str(paper.folder) in fault for fault in caught.value.faults)


def test_all_faults_are_told_at_once(paper: Paper) -> None:
    text = (
        TABLE.replace("dualcse_cross", "dualcse_cros").replace("title:", "titel:").replace("beta: [0.1, 1]", "beta: 1")
    )
    with pytest.raises(ConfigError) as caught:
        paper.read(text)
    assert len(caught.value.faults) == 4, "two of them are the title's"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "table5,DualCSE,roberta_base,RTE,1,,",
            r"line 6: table5\.yaml has no row 'DualCSE' - did you mean 'DualCSE-Cross'",
        ),
        ("table5,DualCSE-Cross,bert_large,RTE,1,,", r"line 6: in table5\.yaml the row .* has no encoder 'bert_large'"),
        ("table5,DualCSE-Cross,,RTE,1,,", r"line 6: in table5\.yaml the row 'DualCSE-Cross' has no encoder 'none'"),
        ("table5,DualCSE-Cross,bert_base,RT,1,,", r"line 6: table5\.yaml has no column 'RT' - did you mean 'RTE'"),
        ("table5,DualCSE-Cross,bert_base,RTE,one,,", r"line 6: 'one', '': no numbers"),
        ("table5,DualCSE-Cross,bert_base,RTE,1,some,", r"line 6: '1', 'some': no numbers"),
        ("table5,DualCSE-Cross,bert_base,RTE,nan,,", r"line 6: 'nan' is no number that was measured"),
        ("table5,DualCSE-Cross,roberta_base,RTE,1,,", r"line 6: the same cell as line 2"),
    ],
)
def test_faults_in_published_numbers_name_the_line(paper: Paper, line: str, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"published\.csv, {told}"):
        paper.read(numbers=f"{NUMBERS}{line}\n")


def test_published_columns_are_checked(paper: Paper) -> None:
    with pytest.raises(ConfigError, match=r"published\.csv, line 1: the columns encoder, value are missing"):
        paper.read(numbers="table,row,column\n")


def test_a_part_of_another_table(paper: Paper) -> None:
    """Base-size rows of a table in the appendix: its other rows, encoders and columns are nobody's fault."""
    numbers = NUMBERS + "table9,DualCSE-Cross,bert_base,RTE,70,,\ntable9,DualCSE-Cross,bert_large,RTE,71,,\n"
    artefact = paper.read(f"published: table9{TABLE}", f"{numbers}table9,Else,,RTE,1,,\ntable9,GPT-4,,Else,1,,\n")
    assert [value.value for value in artefact.published] == [70.0]


def test_a_file_that_is_not_there_or_no_mapping(paper: Paper) -> None:
    path = paper.table()
    with pytest.raises(ConfigError, match=r"table6\.yaml: there is no such file - did you mean 'table5'\?"):
        read_artefact(path.with_name("table6.yaml"))
    with pytest.raises(ConfigError, match=r"table5\.yaml: an artefact is a mapping"):
        paper.read("- title\n")


def test_artefacts_of_a_folder_come_in_natural_order(paper: Paper, tmp_path: Path) -> None:
    for name in ("table10", "table2", "figure1"):
        paper.table(name=name)
    assert list(find_artefacts(tmp_path)) == ["dualcse/figure1", "dualcse/table2", "dualcse/table10"]
    paper.table(TABLE.replace("title:", "titel:"), name="table3")
    paper.table("- no mapping", name="table4")
    with pytest.raises(ConfigError) as caught:
        find_artefacts(tmp_path)
    assert [Path(fault.partition(":")[0]).name for fault in caught.value.faults] == ["table3.yaml"] * 2 + [
        "table4.yaml"
    ]


def test_natural_order_of_mixed_names() -> None:
    assert sorted(["b", "a10b2", "a10b10", "2", "a9"], key=natural) == ["2", "a9", "a10b2", "a10b10", "b"]


def test_the_papers_own_artefacts_are_right() -> None:
    folder = experiments_dir()
    artefacts = find_artefacts(folder)
    assert len(artefacts) == len(list(folder.glob("*/*.yaml"))) >= 26
    for artefact in artefacts.values():
        for profile in (None, "small", "laptop", "tiny"):
            assert artefact.lines(Request(profile=profile)) or not artefact.rows
