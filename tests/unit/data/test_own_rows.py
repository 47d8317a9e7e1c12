"""Which experiments a file fits, and what its rows become for them: one row set a layout."""

import logging
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from lightning_cse.config import conf_dir
from lightning_cse.data import ContrastiveData, OwnRows, Rows, sample_dir
from lightning_cse.data.columns import LAYOUTS
from lightning_cse.data.parsers import PAIR_SENTENCES
from lightning_cse.engine.build import built
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.methods import Method

Compose = Callable[..., DictConfig]

ROWS = 12
CSE, TRIPLET = ("anchor", "positive", "negative"), ("premise", "entailment", "contradiction")
ALL = sorted(path.stem for path in (conf_dir() / "experiment").glob("*.yaml"))


class Words:
    """A tokenize function whose tokens are words."""

    digest = "words"

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        return [
            [zlib.crc32(word.encode()) >> 1 for word in sentence.split()] for sentence in sentences
        ]


def csv(path: Path, columns: Sequence[str], rows: int = ROWS, empty: Sequence[str] = ()) -> str:
    """Write rows whose cells say where they are; the cells of some columns are empty in every other row."""
    lines = [
        ",".join("" if name in empty and row % 2 else f"{name} {row}" for name in columns)
        for row in range(rows)
    ]
    path.write_text("\n".join([",".join(columns), *lines, ""]), encoding="utf-8")
    return str(path)


def labelled(path: Path, labels: Sequence[str] = ("entailment", "neutral", "contradiction")) -> str:
    lines = [f"premise {row},{label} {row},{label}" for row in range(ROWS) for label in labels]
    path.write_text("\n".join(["premise,hypothesis,label", *lines, ""]), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a file of every layout; pairs are those without their optional column."""
    folder = tmp_path_factory.mktemp("files")
    made = {
        name: csv(folder / f"{name}.csv", needed + optional)
        for name, (needed, optional) in LAYOUTS.items()
    }
    del made["unlabelled pairs"]  # a test of direction, and never trained on
    made |= {
        "labelled pairs": labelled(folder / "labelled.csv"),
        "pairs": csv(folder / "pairs.csv", CSE[:2]),
    }
    made |= {"sentence pairs": csv(folder / "sentence_pairs.csv", ("sentence1", "sentence2"))}
    return made | {
        "several": csv(folder / "several.csv", (*CSE, "negative_2"), empty=("negative_2",))
    }


@pytest.fixture(scope="module")
def methods(compose: Compose) -> dict[str, Method]:
    """Return the method of every experiment, with a tiny encoder."""
    configs = {
        name: compose(f"+experiment={name}", "+debug=tiny", "encoder.layers=1") for name in ALL
    }
    encoders = {
        pooling: built(cfg.encoder) for cfg in configs.values() for pooling in [cfg.encoder.pooling]
    }
    return {
        name: built(cfg.method, encoder=encoders[cfg.encoder.pooling])
        for name, cfg in configs.items()
    }


def data(train: str | list[str], method: Method | None = None, **options: Any) -> ContrastiveData:
    given: dict[str, Any] = {
        "batch_size": 4,
        "drop_last": False,
        "seed": 0,
        "data_dir": str(sample_dir()),
    }
    roles = {} if method is None else {"roles": method.roles, "optional": method.optional}
    given = {"rows": OwnRows(), "held_out_share": 0.2, "tokenize": Words(), **given, **roles}
    return ContrastiveData(train=train, **(given | options))


# Experiments


@pytest.mark.parametrize(
    ("layout", "experiments"),
    [
        ("sentences", "simcse_unsup ngcse_nli_dropout"),
        (
            "pairs",
            "simcse_sup simcse_inli simcse_unsup gausscse_ent gausscse_ent_rev ngcse_nli_sup",
        ),
        ("sentence pairs", "simcse_sup gausscse_ent ngcse_nli_sup"),
        (
            "triplets",
            "simcse_sup simcse_inli gausscse gausscse_ent_con ngcse_nli_sup ngcse_nli_nli ngcse_wiki_dropout",
        ),
        ("NLI triplets", "simcse_sup gausscse ngcse_nli_sup"),
        (
            "labelled pairs",
            "simcse_sup simcse_unsup gausscse gausscse_ent ngcse_nli_sup ngcse_nli_dropout",
        ),
        (
            "LLM rows",
            "ngcse_wiki_sts ngcse_nli_sts_ht ngcse_nli_sts_ht_final ngcse_nli_nli simcse_sup gausscse",
        ),
        (
            "INLI",
            "dualcse_cross dualcse_bi dualgauss simcse_inli simcse_sup gausscse impscore impscore_inli",
        ),
        ("implicit pairs", "impscore impscore_inli"),
        ("several", "simcse_sup gausscse ngcse_nli_sup"),
    ],
)
def test_what_every_layout_trains(
    files: dict[str, str],
    methods: dict[str, Method],
    layout: str,
    experiments: str,
    adds_up: Callable[..., bool],
) -> None:
    for name in experiments.split():
        built_data = data(files[layout], methods[name])
        assert adds_up(built_data.counts)
        assert built_data.counts["read"] == ROWS * (3 if layout == "labelled pairs" else 1)
        tokens = next(iter(built_data.train_dataloader()))["roles"]
        assert tuple(tokens) == methods[name].roles
        assert all(
            len(tokens[role]) >= 4
            for role in methods[name].roles
            if role not in methods[name].optional
        )


def test_a_file_that_lacks_a_role(files: dict[str, str], methods: dict[str, Method]) -> None:
    path = files["pairs"]
    with pytest.raises(DataError) as caught:
        data(path, methods["gausscse"])
    needs = "the method trains on contradiction, which these columns do not give: anchor, positive"
    assert str(caught.value) == f"data.train: {path}: {needs}"
    with pytest.raises(
        DataError, match=r"^data\.held_out: .*sentences\.csv: the method trains on positive, which"
    ):
        data(path, methods["simcse_sup"], held_out=files["sentences"], held_out_share=None)


def test_scored_pairs_are_a_test_set(tmp_path: Path, methods: dict[str, Method]) -> None:
    path = tmp_path / "sts.csv"
    path.write_text(
        "sentence1,sentence2,score\n" + "".join(f"a {n},b {n},{n / 3}\n" for n in range(ROWS))
    )
    with pytest.raises(
        DataError,
        match=rf"a test set: evaluate .* \+suite=own own\.sts={path}; to train .* pairs: ",
    ) as e:
        data(str(path), methods["simcse_sup"])
    mapping = str(e.value).rpartition("data.columns=")[2].strip('"')
    assert mapping == "{anchor: sentence1, positive: sentence2}"
    columns = {"anchor": "sentence1", "positive": "sentence2"}
    assert data(str(path), methods["simcse_sup"], columns=columns).counts["read"] == ROWS


def test_an_unknown_layout_is_answered_with_what_the_method_takes(
    tmp_path: Path, methods: dict[str, Method]
) -> None:
    path = csv(tmp_path / "qa.csv", ("question", "answer"))
    with pytest.raises(
        DataError,
        match=r"found: question, answer\n  the method reads anchor, positive, \[negative\]",
    ):
        data(path, methods["simcse_sup"])


# Rows


@pytest.mark.parametrize(
    ("layout", "wanted", "first"),
    [
        ("pairs", TRIPLET[:2], ("anchor 0", "positive 0")),
        ("triplets", TRIPLET, ("anchor 0", "positive 0", "negative 0")),
        ("NLI triplets", CSE, ("premise 0", "entailment 0", "contradiction 0")),
        ("labelled pairs", CSE, ("premise 0", "entailment 0", "contradiction 0")),
        ("sentence pairs", CSE[:2], ("sentence1 0", "sentence2 0")),
        (
            "LLM rows",
            (*CSE, "intermediate"),
            ("anchor 0", "positive 0", "negative 0", "intermediate 0"),
        ),
        ("INLI", CSE, ("premise 0", "explicit_entailment 0", "contradiction 0")),
        ("INLI", CSE[:1], ("premise 0",)),
        ("labelled pairs", CSE[:1], ("premise 0",)),
    ],
)
def test_the_sentences_of_a_role(
    files: dict[str, str], layout: str, wanted: Sequence[str], first: tuple[str, ...]
) -> None:
    tables = data(
        files[layout], None, roles=wanted, held_out=files[layout], held_out_share=None
    ).train
    assert tuple(tables.column(role)[0] for role in wanted) == first
    assert len(tables) == ROWS * (2 if layout == "INLI" and len(wanted) == 3 else 1)


def test_labelled_pairs_without_contradictions_are_pairs(
    tmp_path: Path, methods: dict[str, Method]
) -> None:
    path = labelled(tmp_path / "x.csv", ("entailment", "neutral"))
    pairs = data(path, methods["gausscse_ent"])
    assert pairs.counts["dropped: label neutral"] == ROWS
    assert pairs.roles == TRIPLET[:2]
    with pytest.raises(DataError, match="trains on contradiction, which these columns do not give"):
        data(path, methods["gausscse"])
    path = labelled(tmp_path / "y.csv")
    assert data(path, methods["gausscse_ent"]).roles == TRIPLET
    for rows in (
        data(path, rows=OwnRows(contradiction=False)),
        data(path, methods["simcse_sup"], rows=OwnRows(contradiction=False)),
    ):
        assert rows.counts["dropped: label contradiction"] == ROWS


def test_without_a_method_all_that_there_is(files: dict[str, str]) -> None:
    found = {layout: data(path).roles for layout, path in files.items()}
    assert found["INLI"] == (
        "premise",
        "explicit_entailment",
        "implied_entailment",
        "contradiction",
    )
    assert (found["pairs"], found["labelled pairs"], found["sentences"]) == (
        TRIPLET[:2],
        TRIPLET,
        CSE[:1],
    )
    assert OwnRows()([rows_of(files["INLI"])]).column("anchor")[1] == "premise 1"


def rows_of(path: str) -> Rows:
    return data(path, held_out=path, held_out_share=None).train


def test_files_of_several_layouts(
    files: dict[str, str], methods: dict[str, Method], adds_up: Callable[..., bool]
) -> None:
    together = [files["triplets"], files["pairs"], files["labelled pairs"]]
    mixed = data(together, methods["simcse_sup"], held_out=files["triplets"], held_out_share=None)
    assert mixed.counts["read"] == 5 * ROWS
    assert adds_up(mixed.counts)
    assert mixed.train.column("negative")[ROWS : 2 * ROWS] == [None] * ROWS
    with pytest.raises(
        DataError, match=r"pairs\.csv:2: no contradiction, which the method trains on; 12 of 36"
    ):
        data(together, methods["gausscse"], held_out=files["triplets"], held_out_share=None)
    with pytest.raises(
        DataError, match=r"data\.train: files of these layouts cannot be trained .*: .* has prem"
    ):
        data([files["INLI"], files["pairs"]], methods["simcse_sup"])
    with pytest.raises(ConfigError, match="weights: one row may be made from several sources"):
        data(together, methods["simcse_sup"], weights=[1, 2, 1])
    weighted = data(together[:2], methods["simcse_sup"], weights=[1, 2], batch_size=2)
    assert weighted.counts["rows an epoch"] == sum(k * (ROWS - 2) for k in (1, 2))


def test_columns_are_mapped_on_both_sides(tmp_path: Path, methods: dict[str, Method]) -> None:
    train, held_out = (
        csv(tmp_path / f"{name}.csv", ("question", "answer")) for name in ("train", "held_out")
    )
    columns = {"anchor": "question", "positive": "answer"}
    made = data(
        train, methods["simcse_sup"], columns=columns, held_out=held_out, held_out_share=None
    )
    assert made.train.column("positive")[2] == made.held_out.column("positive")[2] == "answer 2"


# Several hard negatives, or none


def test_pairs_train_without_negatives_and_say_so_once(
    files: dict[str, str], methods: dict[str, Method], caplog: pytest.LogCaptureFixture
) -> None:
    pairs = data(files["pairs"], methods["simcse_sup"])
    assert [len(batch["roles"]["negative"]) for batch in pairs.train_dataloader()] == [0, 0, 0]
    without = "none of the 10 training rows has a sentence of negative; terms of the loss that need it are left out"
    assert caplog.messages == [f"data: {without}"]


def test_all_hard_negatives_are_in_the_batch_with_their_rows(
    files: dict[str, str], methods: dict[str, Method]
) -> None:
    several = data(
        files["several"], methods["simcse_sup"], held_out=files["several"], held_out_share=None
    )
    batch = several.collate(torch.tensor([3, 2, 0]))
    negative, words = batch["roles"]["negative"], Words()
    assert negative.rows.tolist() == [0, 1, 2, 1, 2], "rows 2 and 0 have a second one"
    want = ["negative 3", "negative 2", "negative 0", "negative_2 2", "negative_2 0"]
    assert [
        ids[mask].tolist() for ids, mask in zip(negative.ids, negative.mask, strict=True)
    ] == words(want)
    assert batch["roles"]["anchor"].rows.tolist() == [0, 1, 2]
    assert several.sentences == 3 * ROWS + ROWS // 2


def test_a_method_of_one_negative_a_row_says_what_it_leaves_out(
    files: dict[str, str],
    methods: dict[str, Method],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = data(
        files["several"], methods["gausscse"], held_out=files["several"], held_out_share=None
    )
    assert len(one.collate(torch.arange(ROWS))["roles"]["contradiction"]) == ROWS
    llm_rows = csv(tmp_path / "llm.csv", (*CSE[:2], "intermediate", "negative", "negative_2"))
    nearest = data(llm_rows, methods["ngcse_nli_sts_ht"], held_out=llm_rows, held_out_share=None)
    assert len(nearest.collate(torch.arange(ROWS))["roles"]["negative"]) == ROWS
    assert (
        caplog.messages == ["data: the method uses one negative per row; not used: negative_2"] * 2
    )
    none = data(files["several"], methods["simcse_sup"], rows=OwnRows(contradiction=False))
    assert len(none.collate(torch.arange(6))["roles"]["negative"]) == 0


def test_the_default_share_is_a_twentieth(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made = data(csv(tmp_path / "x.csv", CSE, rows=200), held_out_share=None)
    assert (len(made.train), len(made.held_out)) == (190, 10)
    assert made.counts == {"read": 200, "dropped: held out": 10, "used": 190, "training_rows": 190}


def test_sources_of_any_layout_have_weights(tmp_path: Path, methods: dict[str, Method]) -> None:
    for name, method in {
        "text": "simcse_unsup",
        "pairs": "simcse_unsup",
        "implicit pairs": "impscore",
    }.items():
        columns = {
            "text": ["text"],
            "pairs": ["anchor", "positive"],
            "implicit pairs": list(PAIR_SENTENCES),
        }[name]
        two = [csv(tmp_path / f"{name}{part}.csv", columns) for part in (1, 2)]
        weighted = data(two, methods[method], weights=[2, 1], batch_size=2)
        assert (
            weighted.counts[f"rows an epoch: {two[0]}"]
            == 2 * weighted.counts[f"rows an epoch: {two[1]}"]
            > 0
        )


def test_sentences_of_labelled_pairs_are_their_premises(
    tmp_path: Path, methods: dict[str, Method]
) -> None:
    found = data(labelled(tmp_path / "nli.csv"), methods["simcse_unsup"], held_out_share=0)
    assert found.train.column("anchor") == list(dict.fromkeys(found.train.column("anchor")))
    assert found.counts["used"] + found.counts["dropped: repeated sentence"] == found.counts["read"]


def test_what_cannot_be_excluded_or_limited_is_said(
    tmp_path: Path, methods: dict[str, Method], caplog: pytest.LogCaptureFixture
) -> None:
    pairs, text = (
        csv(tmp_path / "pairs.csv", ["anchor", "positive"]),
        csv(tmp_path / "text.csv", ["text"]),
    )
    data(pairs, methods["simcse_sup"], excluded=[text])
    data(text, methods["simcse_unsup"], excluded=[pairs])
    assert [
        record.message for record in caplog.records if "leaves out nothing" in record.message
    ] == [
        f"data.excluded: {text} has no sentence pairs, so data.excluded leaves out nothing",
        f"data.train: {text} has no sentence pairs, so data.excluded leaves out nothing",
    ]
    with pytest.raises(ConfigError, match=r"data\.llm_rows: must be null"):
        data(pairs, methods["simcse_sup"], llm_rows=3)


def test_impscore_takes_inli_with_one_entailment(
    tmp_path: Path, methods: dict[str, Method]
) -> None:
    file = csv(tmp_path / "inli.csv", ["premise", "implied_entailment", "contradiction"])
    assert data(file, methods["impscore"], held_out_share=0).counts["training_rows"] == ROWS
