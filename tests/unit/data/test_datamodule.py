"""The data module: an account that adds up, rows drawn once for all, and no evaluated pair among those trained on."""

import csv
import hashlib
import json
import logging
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_cse.data import (
    ContrastiveData,
    INLIQuadruples,
    INLITriplets,
    NLITriplets,
    Rows,
    Sentences,
    read_corpus,
    sample_dir,
)
from lightning_cse.data.roles import RoleRows
from lightning_cse.errors import ConfigError, DataError

INLI, WIKI = ["inli/train"], ["wiki1m/train"]
NLI = ["simcse_nli/train", "snli/train", "mnli_nyu/train"]
EVALUATED = ["snli/dev", "snli/test", "mnli_nyu/dev_matched", "sick/test"]
CSE_ROLES = ("anchor", "positive", "negative")


class Words:
    """A tokenize function whose tokens are words."""

    digest = "words"

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        return [
            [zlib.crc32(word.encode()) >> 1 for word in sentence.split()] for sentence in sentences
        ]


def make(rows: RoleRows, train: Sequence[str], **options: Any) -> ContrastiveData:
    given: dict[str, Any] = {
        "batch_size": 8,
        "drop_last": False,
        "seed": 0,
        "data_dir": str(sample_dir()),
    }
    return ContrastiveData(train=train, rows=rows, tokenize=Words(), **(given | options))


def inli(rows: RoleRows | None = None, **options: Any) -> ContrastiveData:
    held_out = {} if "held_out_share" in options else {"held_out": ["inli/val"]}
    return make(rows or INLIQuadruples(), INLI, **(held_out | options))


def nli(rows: RoleRows | None = None, **options: Any) -> ContrastiveData:
    return make(rows or NLITriplets(), NLI, **({"held_out": ["snli/dev"]} | options))


def places(rows: Rows) -> list[str]:
    """Return the line of a corpus that each row comes from; those made of one line have it twice."""
    return [rows.where(row) for row in range(len(rows))]


def index_of(data: ContrastiveData, epochs: int = 1) -> list[list[int]]:
    loader = data.train_dataloader()
    return [batch["index"].tolist() for _ in range(epochs) for batch in loader]


def trained_on(data: ContrastiveData) -> dict[str, list[list[int]]]:
    """Return the tokens of the training rows by role, as the batches of an epoch have them, row by row."""
    data.setup()
    sentences: dict[str, dict[int, list[int]]] = {}
    for batch in data.train_dataloader():
        for role, tokens in batch["roles"].items():
            for row, ids, mask in zip(
                batch["index"].tolist(), tokens.ids, tokens.mask, strict=True
            ):
                sentences.setdefault(role, {})[row] = ids[mask].tolist()
    return {role: [ids for _, ids in sorted(rows.items())] for role, rows in sentences.items()}


# The account


@pytest.mark.parametrize(
    ("rows", "train", "options"),
    [
        (INLIQuadruples(), INLI, {"held_out": ["inli/val"]}),
        (
            INLIQuadruples(),
            [*INLI, "inli/val"],
            {"held_out": ["inli/val"], "excluded": ["inli/val"]},
        ),
        (INLITriplets("implied"), INLI, {"held_out_share": 0.1, "train_rows": 50}),
        (
            NLITriplets(),
            [*NLI, "snli/test"],
            {"held_out_share": 0.2, "train_rows": 20, "excluded": EVALUATED},
        ),
        (NLITriplets("product"), NLI, {"held_out_share": 0.2, "train_rows": 30}),
        (NLITriplets("cycle", contradiction=False), NLI, {"held_out_share": 0.2, "train_rows": 20}),
        (Sentences(), [*WIKI, "wikitext2/valid"], {"held_out_share": 0.1, "train_rows": 40}),
    ],
)
def test_every_row_that_was_read_is_used_or_dropped_for_a_reason(
    rows: RoleRows, train: list[str], options: dict[str, Any], adds_up: Callable[..., bool]
) -> None:
    data = make(rows, train, **options)
    assert data.counts["training_rows"] == len(data.train)
    assert data.counts["read"] == sum(
        read_corpus(*name.split("/"), sample_dir()).counts["read"] for name in train
    )
    assert adds_up(data.counts)
    assert data.counts["used"] >= len(set(places(data.train))) > 0


def test_more_than_there_is_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    data = inli(INLITriplets("both"), train_rows=596)
    assert caplog.messages == ["data.train_rows=596, but there are only 595 rows; all are used"]
    assert data.counts == {"read": 595, "used": 595, "training_rows": 2 * 595}
    assert [len(batch) for batch in index_of(inli(train_rows=5))] == [5]
    assert (
        caplog.messages[1] == "data.batch_size=8, but an epoch has only 5 rows: all are one batch"
    )


# Rows that are drawn


@pytest.mark.parametrize("options", [{}, {"held_out_share": 0.1}])
def test_fewer_rows_are_the_same_premises_for_every_seed_and_for_triplets_alike(
    options: dict[str, Any],
) -> None:
    want = inli(train_rows=40, **options).train.column("premise")
    assert len(set(want)) == 40
    assert inli(train_rows=40, seed=1, **options).train.column("premise") == want
    both = inli(INLITriplets("both"), train_rows=40, seed=2, **options).train
    assert both.column("premise") == [premise for premise in want for _ in range(2)]
    whole = inli(**options).train.column("premise")
    assert [premise for premise in whole if premise in set(want)] == want, (
        "in the order of the corpus"
    )
    assert want != whole[:40], "drawn, not the first"


@pytest.mark.parametrize(
    ("rows", "train", "apart"),
    [(INLITriplets(), INLI, 60), (NLITriplets(), NLI, 9), (Sentences(), WIKI, 41)],
)
def test_a_share_held_out_is_apart_from_training_and_the_same_for_every_seed(
    rows: RoleRows, train: list[str], apart: int
) -> None:
    data, other, fewer = (
        make(rows, train, held_out_share=0.1, **options)
        for options in ({}, {"seed": 1}, {"train_rows": apart, "held_out_rows": 3})
    )
    held_out = places(data.held_out)
    assert len(set(held_out)) == apart
    assert not set(held_out) & set(places(data.train))
    first = rows.roles[0]
    assert not set(data.held_out.column(first)) & set(data.train.column(first)) or first == "anchor"
    assert (places(other.held_out), places(other.train)) == (held_out, places(data.train))
    assert places(fewer.held_out) == held_out
    assert places(fewer.watched(fewer.roles)) == held_out[:3]
    assert set(places(fewer.train)) < set(places(data.train))


@pytest.mark.parametrize(("share", "rows"), [(0.0001, 2), (0.5, 205), (408 / 410, 408)])
def test_both_sides_of_a_share_have_two_rows_at_least(share: float, rows: int) -> None:
    data = make(Sentences(), WIKI, held_out_share=share)
    assert (len(data.held_out), len(data.train)) == (rows, 410 - rows)


BOTH = [*INLI, "inli/val"]
REFUSED: list[tuple[RoleRows, list[str], dict[str, Any], str]] = [
    (Sentences(), WIKI, {"held_out_share": 0.998}, r"held_out_share: 0\.998 of 410 sentences"),
    (Sentences(), WIKI, {"held_out_share": 1.0}, r"held_out_share: must be in \[0, 1\), got 1\.0"),
    (
        Sentences(),
        WIKI,
        {"watched_in": ["ngcse/other"]},
        r"watched_in: (.|\n)*data\.watched_in=\[\] watches the first",
    ),
    (
        Sentences(),
        WIKI,
        {"held_out": WIKI, "held_out_share": 0.1},
        "held_out: give splits or files, or",
    ),
    (
        Sentences(),
        ["wiki1m-train"],
        {"held_out": WIKI},
        "train: 'wiki1m-train' is not of the form corpus/split",
    ),
    (Sentences(), WIKI, {"held_out": ["mine"]}, "held_out: 'mine' is not of the form"),
    (
        Sentences(),
        WIKI,
        {"held_out": WIKI, "excluded": ["mine"]},
        "excluded: 'mine' is not of the form",
    ),
    (
        NLITriplets(),
        NLI[:2],
        {"held_out_share": 0.1, "weights": [1, 2]},
        "weights: one row may be made from several",
    ),
    (
        Sentences(),
        WIKI,
        {"distinct_in_batch": True, "llm_rows_together": 4},
        "distinct_in_batch: cannot be combined",
    ),
    *(
        (INLIQuadruples(), BOTH, {"held_out": ["inli/val"], **options}, f"weights: {message}")
        for options, message in [
            ({"weights": [1]}, r"1 numbers for the 2 sources of data\.train \(inli/train, "),
            ({"weights": [1, 0]}, r"must be in \(0, 1000\], got 0;"),
            (
                {"weights": [float("nan"), float("inf"), 2]},
                "3 numbers(.|\n)*must .* got nan(.|\n)*must .* got inf",
            ),
            (
                {"weights": [1, 2], "llm_rows_together": 4},
                r"cannot be combined with data\.llm_rows_together",
            ),
            (
                {"weights": [1, 3], "batch_size": 512},
                "some rows are drawn 3 times an epoch, which has 1 whole batches",
            ),
        ]
    ),
]


@pytest.mark.parametrize(("rows", "train", "options", "message"), REFUSED)
def test_what_is_refused(
    rows: RoleRows, train: list[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, DataError), match=rf"data\.{message}"):
        make(rows, train, **options)


# Roles


def test_only_the_roles_in_use_are_in_batches_also_when_they_change() -> None:
    data = inli(train_rows=16)
    assert tuple(trained_on(data)) == data.roles
    assert data.sentences == 4 * 16
    data.use(("premise", "contradiction"))
    assert trained_on(data) == {
        role: Words()(data.train.column(role)) for role in ("premise", "contradiction")
    }
    assert data.sentences == 2 * 16


@pytest.mark.parametrize("data", [lambda: nli(NLITriplets(contradiction=False)), inli])
def test_a_role_that_the_rows_lack_is_reported_with_those_they_have(
    data: Callable[[], ContrastiveData],
) -> None:
    built = data()
    with pytest.raises(ConfigError) as caught:
        built.use(CSE_ROLES)
    have = f"the method trains on {', '.join(CSE_ROLES)}, but this data has {', '.join(built.roles)}; missing: "
    assert have in str(caught.value)


def test_training_sentences_are_cut_and_counted() -> None:
    whole, cut = nli(), nli(max_tokens=6)
    tokens = trained_on(whole)
    lengths = [len(ids) for role in tokens.values() for ids in role]
    assert trained_on(cut) == {role: [ids[:6] for ids in found] for role, found in tokens.items()}
    for limit in (4, 6, 9, 1000):
        assert whole.longer_than(limit) == sum(length > limit for length in lengths)
        assert cut.longer_than(limit) == sum(length > min(limit, 6) for length in lengths)
    assert 0 < cut.longer_than(1000) < len(lengths) == cut.sentences
    batch = cut.collate(torch.tensor([3, 1]))
    assert max(tokens.ids.shape[1] for tokens in batch["roles"].values()) <= 6
    assert batch["index"].tolist() == [3, 1]
    assert cut.held_out.column("premise") == whole.held_out.column("premise")


# Pairs that are evaluated

RAIN, SNOW, WIND = "It rains in the valley.", "Snow lies on the hill.", "The wind shakes a door."


@pytest.fixture
def leaking(put: Callable[[str, str], Path], tmp_path: Path) -> Path:
    """Two training sets in their official layouts, of which a test set has some pairs, word for word or nearly."""

    def put_snli(split: str, *rows: tuple[str, str, str]) -> None:
        cells = [
            dict(zip(("sentence1", "sentence2", "gold_label"), row, strict=True)) for row in rows
        ]
        put(
            f"SNLI/snli_1.0/snli_1.0_{split}.jsonl",
            "".join(f"{json.dumps(row)}\n" for row in cells),
        )

    training = [(premise, f"{premise[:-1]} now.", "entailment") for premise in (RAIN, SNOW, WIND)]
    put_snli(
        "train",
        *training,
        *((premise, "Nothing happens.", "contradiction") for premise in (RAIN, SNOW, WIND)),
    )
    put_snli(
        "dev",
        ("A boat sails.", "It moves.", "entailment"),
        ("A boat sails.", "No.", "contradiction"),
    )
    put_snli(
        "test",
        (RAIN, "Nothing happens.", "contradiction"),
        ("snow lies on the hill now", SNOW, "neutral"),  # turned round, other case and punctuation
        ("Bees hum .", "Bees are silent .", "contradiction"),  # of a triplet, tokenised
        (WIND, "A door is shaken by the wind.", "entailment"),  # a premise alone is no pair
    )
    ready = [
        "Bees hum.,Insects make a sound.,Bees are silent.",
        "Bees hum.,Insects hum.,Bees sleep.",
    ]
    put("simcse/nli_for_simcse.csv", "\n".join(["sent0,sent1,hard_neg", *ready]))
    return tmp_path


def build(folder: Path, excluded: Sequence[str]) -> ContrastiveData:
    options = {"held_out": ["snli/dev"], "excluded": excluded, "data_dir": str(folder)}
    return make(NLITriplets(), ["simcse_nli/train", "snli/train"], **options)


def test_pairs_that_are_evaluated_never_reach_training(
    leaking: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        data = build(leaking, ["snli/dev", "snli/test"])
    assert data.train.column("premise") == ["Bees hum.", WIND]
    assert data.train.column("entailment") == ["Insects hum.", f"{WIND[:-1]} now."]
    assert data.counts == {
        "read": 8,
        "dropped: pair of a dev or test set": 3,
        "dropped: premise without a contradiction": 1,
        "dropped: premise without an entailment": 1,
        "used": 3,
        "training_rows": 2,
    }
    assert caplog.messages == [
        "3 training rows have a sentence pair of snli/dev, snli/test and are left out"
    ]
    assert len(build(leaking, []).train) == 5, "without it they do"
    with pytest.raises(DataError, match=r"simcse/nli_for_simcse\.csv.*: no premise has both"):
        build(leaking, ["snli/train", "simcse_nli/train"])


@pytest.mark.parametrize("excluded", [["snli/test"], []])
def test_digests_hold_every_file_that_decided_the_rows(leaking: Path, excluded: list[str]) -> None:
    splits = ["train", "dev", *(name.removeprefix("snli/") for name in excluded)]
    names = [
        "simcse/nli_for_simcse.csv",
        *(f"SNLI/snli_1.0/snli_1.0_{split}.jsonl" for split in splits),
    ]
    want = {name: hashlib.sha256((leaking / name).read_bytes()).hexdigest() for name in names}
    assert build(leaking, excluded).digests == want


# Rows of one's own, with holes and weights

HOLES = [
    ("Ann closed the window.", "Ann shut a window.", "Ann felt cold.", "Ann opened it."),
    ("Ben looked at his watch again.", "Ben looked at a watch.", "Ben is in a hurry.", ""),
    (
        "The kettle whistled for a while.",
        "",
        "Nobody was in the kitchen.",
        "The kettle made no sound.",
    ),
    ("Only the neutral one is here.", "", "", ""),
    ("Carl left his plate half full.", "Carl had a plate.", "", ""),
    ("Dora hums whenever it rains.", "", "", "Dora is silent in the rain."),
]


def put_own(path: Path, rows: Sequence[Sequence[str]]) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*INLIQuadruples.roles, "neutral"])
        writer.writerows([*row, "Something else happened."] for row in rows)
    return str(path)


@pytest.fixture
def holes(tmp_path: Path) -> str:
    return put_own(tmp_path / "holes.csv", HOLES)


@pytest.fixture
def uncontradicted(tmp_path: Path) -> ContrastiveData:
    own = put_own(
        tmp_path / "own.csv",
        [(f"It is {k}.", f"The number {k} is.", f"Not {k + 1}.", "") for k in range(9)],
    )
    return make(INLIQuadruples(), [own], held_out=["inli/val"])


def with_holes(own: str, rows: RoleRows | None = None, **options: Any) -> ContrastiveData:
    return make(rows or INLIQuadruples(), [*INLI, own], **({"held_out": ["inli/val"]} | options))


def test_rows_with_holes_reach_the_batches_of_the_roles_they_have(
    holes: str, tmp_path: Path
) -> None:
    data, cached = with_holes(holes), with_holes(holes, cache_dir=str(tmp_path))
    assert data.counts == {
        "read": 601,
        "dropped: no entailment and no contradiction": 1,
        "used": 600,
        "training_rows": 600,
        "rows with explicit_entailment": 598,
        "rows with implied_entailment": 598,
        "rows with contradiction": 598,
    }
    data.setup()
    cached.setup()
    assert data.sentences == 600 + 3 * 598
    index = torch.tensor([599, 0, 596])
    for batch in (data.collate(index)["roles"], cached.collate(index)["roles"]):
        assert {role: tokens.rows.tolist() for role, tokens in batch.items()} == {
            "premise": [0, 1, 2],
            "explicit_entailment": [1, 2],
            "implied_entailment": [1, 2],
            "contradiction": [0, 1],
        }
        assert (
            batch["contradiction"].ids[0][batch["contradiction"].mask[0]].tolist()
            == Words()([HOLES[5][3]])[0]
        )
    none = data.collate(torch.tensor([599, 597]))["roles"]["explicit_entailment"]
    assert (len(none), none.rows.tolist(), none.ids.shape) == (0, [], (0, 0))
    sentences = [
        sentence
        for role in data.roles
        for sentence in data.train.column(role)
        if sentence is not None
    ]
    assert data.longer_than(4) == sum(len(sentence.split()) > 4 for sentence in sentences)
    assert not data.has_llm_rows


@pytest.mark.parametrize("weights", [None, [1, 0.5]])
def test_a_share_held_out_and_fewer_rows_of_rows_with_holes(
    holes: str, weights: list[float] | None, adds_up: Callable[..., bool]
) -> None:
    data = with_holes(holes, held_out=None, held_out_share=0.5, train_rows=200, weights=weights)
    assert len(data.train) == 200
    assert not set(data.train.column("premise")) & set(data.held_out.column("premise"))
    watched = data.watched(data.roles)
    assert all(None not in watched.column(role) for role in data.roles)
    assert adds_up(data.counts)


def test_held_out_rows_that_lack_a_role_are_reported_by_the_key_they_come_from(holes: str) -> None:
    data = with_holes(holes, held_out=[holes])
    message = r"1 of 5 held-out rows have the roles .*: give data\.held_out splits that have"
    with pytest.raises(DataError, match=message):
        data.watched(data.roles)


def test_a_role_that_no_row_has_is_an_error_unless_the_method_does_without(
    uncontradicted: ContrastiveData, caplog: pytest.LogCaptureFixture
) -> None:
    data, roles = uncontradicted, uncontradicted.roles
    message = r"none of the 9 training rows \(.*own\.csv\) has a sentence of contradiction, which"
    with pytest.raises(DataError, match=message):
        data.use(roles)
    with pytest.raises(DataError, match=message):
        data.use(("premise", "contradiction"), optional=("contradiction",))
    data.use(roles[:3])
    assert sorted(trained_on(data)) == sorted(roles[:3])
    data.use(roles, optional=roles[1:])
    assert (
        "none of the 9 training rows has a sentence of contradiction; terms of the loss"
        in caplog.text
    )
    data.setup()
    batch = next(iter(data.train_dataloader()))
    assert [role for role, tokens in batch["roles"].items() if not len(tokens)] == ["contradiction"]


def test_no_sentence_is_twice_in_a_batch_of_any_role_in_use() -> None:
    plain, apart = (
        inli(INLITriplets("both"), distinct_in_batch=option) for option in (False, True)
    )
    roles = ("premise", "entailment", "contradiction")

    def repeated(data: ContrastiveData) -> list[str]:
        batches = [data.train.select(rows) for rows in index_of(data)]
        counts = (
            Counter(s for row in zip(*map(rows.column, roles), strict=True) for s in {*row})
            for rows in batches
        )
        return [sentence for count in counts for sentence, times in count.items() if times > 1]

    assert repeated(plain)
    assert not repeated(apart)
    assert sorted(row for batch in index_of(apart) for row in batch) == list(range(2 * 595))


def test_weights_of_one_change_nothing(holes: str) -> None:
    plain, ones = with_holes(holes), with_holes(holes, weights=[1, 1.0])
    assert index_of(ones, 3) == index_of(plain, 3)
    assert (ones.counts, ones.train.names) == (plain.counts, plain.train.names)


def test_weighted_rows_by_source_and_their_account(
    holes: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        data = with_holes(holes, weights=[0.5, 3])
    assert caplog.messages == [
        f"an epoch draws 313 rows: 298 of inli/train (595 rows of weight 0.5), 15 of {holes} (5 rows of weight 3)"
    ]
    drawn = {key: count for key, count in data.counts.items() if key.startswith("rows an epoch")}
    assert drawn == {
        "rows an epoch": 313,
        "rows an epoch: inli/train": 298,
        f"rows an epoch: {holes}": 15,
    }
    assert data.counts["training_rows"] == 600
    rows = [row for batch in index_of(data) for row in batch]
    assert len(rows) == 313
    assert sorted(row for row in rows if row >= 595) == [
        row for row in range(595, 600) for _ in range(3)
    ]
    triplets = with_holes(holes, INLITriplets("both"), weights=[1, 2])
    assert triplets.counts["rows an epoch"] == 2 * 595 + 2 * 3, (
        "Ann's two and the kettle's one, twice"
    )


def test_a_weighted_epoch_is_taken_up_in_its_middle(holes: str) -> None:
    want = index_of(with_holes(holes, weights=[0.5, 3]), 2)
    first, second = (with_holes(holes, weights=[0.5, 3]) for _ in range(2))
    batches = iter(first.train_dataloader())
    found = [next(batches)["index"].tolist() for _ in range(7)]
    second.load_state_dict(first.state_dict())
    assert found + index_of(second, 2) == want
    assert index_of(with_holes(holes, weights=[0.5, 3], seed=1), 2) != want
