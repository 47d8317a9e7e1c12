"""Tables and figures as files: what they hold, and what is reported of a file that is wrong."""

import pytest

from lightning_cse.errors import ConfigError
from lightning_cse.paths import experiments_dir
from lightning_cse.tables.files import find_specs, read_spec
from lightning_cse.tables.spec import Needs, Profile, Request

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
rows:
  DualCSE: {experiment: dualcse_cross, overrides: [data.batch_size=32], name: DualCSE-Cross}
  BERT avg: {evaluate: {model: "{encoder}", suite: sts, overrides: [pooling=mean]}}
  hub: {evaluate: {model: a/model, suite: sts}, encoders: [bert_base]}
  words: {evaluate: {model: length, suite: inli}, encoders: []}
  transfer: {experiment: ngcse_wiki_sts_ht, suite: transfer, seeds: [7]}
  LENGTH: {baseline: length, of: paid}
  untrained: {baseline: untrained, of: DualCSE, encoders: [bert_base]}
  paid: {experiment: dualcse_bi, encoders: [bert_base], needs: {variable: CSE_MAY_ASK, why: it costs money}}
  GPT-4: {published: "asked, not trained"}
  LLM: {published: it is retired}
reference: DualCSE
profiles:
  small: {overrides: [encoder.pooling=cls], seeds: 3, rows: {DualCSE: [data.train_rows=500]}}
"""
NUMBERS = """table,row,encoder,column,value,deviation,note
table5,DualCSE-Cross,roberta_base,RTE,78.14,0.3,
table4,Other,,X,1.0,,
table5,GPT-4,,RTE,90,,asked
table5,LLM,bert_base,RTE,33.3,,
"""


@pytest.fixture
def read(tmp_path):
    """Write and read a spec ``dualcse/table5``."""
    (tmp_path / "dualcse").mkdir()

    def write_and_read(text=TABLE, numbers=NUMBERS):
        (tmp_path / "dualcse" / "published.csv").write_text(numbers)
        (tmp_path / "dualcse" / "table5.yaml").write_text(text)
        return read_spec(tmp_path / "dualcse" / "table5.yaml")

    return write_and_read


def test_columns_and_published_numbers(read):
    spec = read()
    assert (spec.key, spec.source) == ("dualcse/table5", "DualCSE, Table 5")
    assert (spec.reference, spec.test, spec.make) == ("DualCSE", "mcnemar", None)
    assert [
        (number.title, number.source, number.keys, number.scale, number.decimals)
        for number in spec.columns
    ] == [
        ("RTE", "metric", ("test/rte/accuracy_all",), 100.0, 2),
        ("MNLI", "metric", ("test/mnli/accuracy",), 100.0, 2),
        ("Avg", "mean", ("RTE", "MNLI"), 1.0, 2),
        ("dev", "field", ("best.score",), 1.0, 4),
        ("lr", "config", ("method.optimizer.lr",), 1.0, 2),
    ]
    assert spec.columns[1].instead == {"test/mnli_matched/accuracy": "matched dev"}
    numbers = spec.published.fillna({"deviation": 0}).to_numpy().tolist()
    assert numbers == [
        ["DualCSE-Cross", "roberta_base", "RTE", 78.14, 0.3, ""],
        ["GPT-4", "", "RTE", 90.0, 0, "asked"],
        ["LLM", "bert_base", "RTE", 33.3, 0, ""],
    ]


FIVE = (0, 1, 2, 3, 4)
BOTH = ("roberta_base", "bert_base")


def test_a_row_is_a_line_for_each_encoder(read):
    lines = read().lines(Request())
    assert lines[["label", "encoder", "seeds", "published"]].apply(tuple, axis=1).tolist() == [
        *(("DualCSE", name, FIVE, "") for name in BOTH),
        *(("BERT avg", name, (0,), "") for name in BOTH),
        ("hub", "bert_base", (0,), ""),
        ("words", "", (0,), ""),
        *(("transfer", name, (7,), "") for name in BOTH),
        ("LENGTH", "", FIVE, ""),
        ("untrained", "bert_base", FIVE, ""),
        ("paid", "bert_base", FIVE, ""),
        ("GPT-4", "", FIVE, "asked, not trained"),
        ("LLM", "bert_base", FIVE, "it is retired"),
    ]
    needs = lines.set_index("label")["needs"].dropna().to_dict()
    assert needs == dict.fromkeys(("LENGTH", "paid"), Needs("CSE_MAY_ASK", "it costs money"))


@pytest.mark.parametrize(
    ("label", "request_", "expected"),
    [
        ("DualCSE", Request("small"), ("minilm_l4", "roberta_base", (0, 1, 2))),
        ("words", Request("small"), ("", "", (0,))),
        ("LENGTH", Request("small"), ("", "", (0, 1, 2))),
        ("LLM", Request("small"), ("bert_base", "bert_base", (0, 1, 2))),
        ("DualCSE", Request("small", "bert_base", (5, 6)), ("bert_base", "bert_base", (5, 6))),
        ("DualCSE", Request("tiny", "bert_large"), ("bert_large", "roberta_base", (0,))),
    ],
)
def test_a_profile_or_an_encoder_replaces_all_encoders(read, label, request_, expected):
    lines = read().lines(request_)
    (line,) = lines[lines["label"] == label].itertuples()
    assert (line.encoder, line.paper_encoder, line.seeds) == expected
    (hub,) = read().lines(Request("small", only=("hub",)))["published"]
    assert "a model of its own" in hub


def test_a_profile_may_keep_the_encoders_of_the_file(read):
    spec = read(TABLE.replace("small: {", "small: {keep_encoders: true, "))
    lines = {}
    for request in (Request("small"), Request("tiny"), Request("small", "bert_large")):
        of_request = spec.lines(request)
        lines[request] = of_request.loc[of_request["label"] == "DualCSE", "encoder"].tolist()

    assert list(lines.values()) == [list(BOTH), ["tiny"], ["bert_large"]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: What", "titel: What", "titel: Unexpected keyword"),
        ("title: What the terms contribute", "", r"yaml: title: "),
        ("reference: DualCSE", "reference: DualCES", r"reference: .* did you mean 'DualCSE'\?"),
        ("encoders: [roberta_base, bert_base]", "", r"rows\.DualCSE: .*encoders"),
        (
            "a/model, suite: sts}",
            "a/model, siute: sts}",
            r"rows\.hub\.evaluate\.siute: Unexpected keyword",
        ),
        ("of: DualCSE,", "of: hub,", r"rows\.untrained\.of .a trained row.: .*'hub'"),
        ("baseline: length,", "baseline: length, experiment: gausscse,", r"rows\.LENGTH: must"),
        ("mean: [RTE, MNLI]", "mean: [RTE, MNL]", r"columns\.Avg\.mean: .*did you mean 'MNLI'\?"),
        (
            "mean: [RTE, MNLI]",
            "difference: [RTE]",
            r"columns\.Avg: .*difference: needs two columns",
        ),
        ("field: best", "feild: best", r"columns\.dev: must have one of metric, field"),
        ("small: {", "smal: {", r"profiles: .*'smal' - did you mean 'small'\?"),
        ("rows: {DualCSE:", "rows: {DualCES:", r"profiles\.small\.rows: .*did you mean 'DualCSE'"),
        ("  LLM: {pub", "  GPT-4: {pub", r"table5\.yaml: .*duplicate key GPT-4"),
        ("title: What", "published: table55\ntitle: What", r"published: .*'table55'"),
        ("title: What", "match: [LENGTH]\ntitle: What", r"match .a trained row"),
    ],
)
def test_faults_name_file_and_key(read, old, new, message):
    assert TABLE.count(old) == 1
    with pytest.raises(ConfigError, match=message) as caught:
        read(TABLE.replace(old, new))

    assert all("/dualcse/" in fault for fault in caught.value.faults)


@pytest.mark.parametrize(
    "line",
    [
        "table5,DualCSE,roberta_base,RTE,1,,",
        "table5,DualCSE-Cross,bert_large,RTE,1,,",
        "table5,DualCSE-Cross,bert_base,RT,1,,",
        "table5,DualCSE-Cross,bert_base,RTE,nan,,",
    ],
)
def test_published_numbers_without_a_cell_are_refused(read, line):
    with pytest.raises(ConfigError, match=r"published"):
        read(numbers=f"{NUMBERS}{line}\n")


def test_a_part_of_another_table(read):
    numbers = f"{NUMBERS}table9,DualCSE-Cross,bert_base,RTE,70,,\ntable9,Else,,RTE,1,,\n"
    spec = read(f"published: table9{TABLE}", numbers)
    assert spec.published["value"].tolist() == [70.0]


def test_profiles_that_the_files_of_a_folder_share(read, tmp_path):
    rows = "rows: {DualCSE: [data.train_rows=7], other: [x=1]}"
    shared = f"small: {{overrides: [diag.sentences=9], seeds: 2, {rows}}}"
    own_profile = read()
    (tmp_path / "dualcse" / "profiles.yaml").write_text(shared)
    assert read().profiles == own_profile.profiles, "a profile of the file itself is its own"
    text = TABLE.replace("small: {", "laptop: {")
    lines = read(text).profiles["small"]
    assert lines == Profile(("diag.sentences=9",), (0, 1), {"DualCSE": ("data.train_rows=7",)})
    assert read(text + "seeds: [5]\n").profiles["small"].seeds is None, "a list of seeds stays"
    assert find_specs(tmp_path).keys() == {"dualcse/table5"}


def test_the_papers_own_specs_are_right():
    specs = find_specs(experiments_dir())
    other_specs = ("profiles.yaml", "claims.yaml")
    files = [file for file in experiments_dir().glob("*/*.yaml") if file.name not in other_specs]
    assert len(specs) == len(files) >= 26
    for spec in specs.values():
        for profile in (None, "small", "laptop", "tiny"):
            assert len(spec.lines(Request(profile=profile))) or not spec.rows
