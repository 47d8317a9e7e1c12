"""The data module: an account that adds up, rows drawn once for all, and no evaluated pair among those trained on."""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import re
import zlib
from collections.abc import Sequence
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
from lightning_cse.data.drawing import hold_out
from lightning_cse.data.roles import RoleRows, made_of
from lightning_cse.errors import ConfigError, DataError

NLI = ("simcse_nli/train", "snli/train", "mnli_nyu/train")
EVALUATED = ("snli/dev", "snli/test", "mnli_nyu/dev_matched", "sick/test")
SEEDS = range(3)


class Words:
    """A tokenize function whose tokens are words."""

    digest = "words"

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        return [[zlib.crc32(word.encode()) >> 1 for word in sentence.split()] for sentence in sentences]


def make(rows: RoleRows, train: Sequence[str], **options: Any) -> ContrastiveData:
    given: dict[str, Any] = {"batch_size": 8, "drop_last": False, "seed": 0, "data_dir": str(sample_dir())}
    return ContrastiveData(train=train, rows=rows, tokenize=Words(), **(given | options))


def inli(rows: RoleRows, **options: Any) -> ContrastiveData:
    held_out = {} if "held_out_share" in options else {"held_out": ["inli/val"]}
    return make(rows, ["inli/train"], **(held_out | options))


def nli(rows: RoleRows | None = None, **options: Any) -> ContrastiveData:
    held_out = {} if "held_out_share" in options else {"held_out": ["snli/dev"]}
    return make(rows or NLITriplets(), NLI, **(held_out | options))


def places(rows: Rows) -> list[str]:
    """Return the line of a corpus that each row comes from; those made of one line have it twice."""
    return [rows.where(row) for row in range(len(rows))]


def trained_on(data: ContrastiveData) -> dict[str, list[list[int]]]:
    """Return the tokens of the training rows by role, as the batches of an epoch have them, row by row."""
    data.setup()
    sentences: dict[str, dict[int, list[int]]] = {}
    for batch in data.train_dataloader():
        for role, tokens in batch["roles"].items():
            for row, ids, mask in zip(batch["index"].tolist(), tokens.ids, tokens.mask, strict=True):
                sentences.setdefault(role, {})[row] = ids[mask].tolist()
    return {role: [ids for _, ids in sorted(rows.items())] for role, rows in sentences.items()}


# The account


@pytest.mark.parametrize(
    ("rows", "train", "options"),
    [
        (INLIQuadruples(), ["inli/train"], {"held_out": ["inli/val"]}),
        (INLIQuadruples(), ["inli/train", "inli/val"], {"held_out": ["inli/val"], "excluded": ["inli/val"]}),
        (INLITriplets("implied"), ["inli/train"], {"held_out_share": 0.1, "train_rows": 50}),
        (NLITriplets(), NLI, {"held_out": ["snli/dev"], "excluded": EVALUATED}),
        (NLITriplets(), [*NLI, "snli/test"], {"held_out_share": 0.2, "train_rows": 20, "excluded": EVALUATED}),
        (NLITriplets("product"), NLI, {"held_out_share": 0.2, "train_rows": 30}),
        (NLITriplets("cycle", contradiction=False), NLI, {"held_out_share": 0.2, "train_rows": 20}),
        (Sentences(), ["wiki1m/train", "wikitext2/valid"], {"held_out_share": 0.1, "train_rows": 40}),
        (Sentences(), ["wiki1m/train"], {"held_out": ["wikitext2/valid"]}),
    ],
)
def test_every_row_that_was_read_is_used_or_dropped_for_a_reason(
    rows: RoleRows, train: list[str], options: dict[str, Any]
) -> None:
    data = make(rows, train, **options)
    counts = dict(data.counts)
    assert counts.pop("training_rows") == len(data.train)
    assert counts["read"] == sum(read_corpus(*source.split("/"), sample_dir()).counts["read"] for source in train)
    read, used = counts.pop("read"), counts.pop("used")
    assert all(key.startswith("dropped: ") for key in counts), counts
    assert read == used + sum(counts.values())
    assert used >= len(set(places(data.train))) > 0


def test_the_account_of_triplets_that_come_two_a_premise() -> None:
    data = inli(INLITriplets("both"), held_out_share=0.2, train_rows=50)
    dropped = {"dropped: held out": 119, "dropped: data.train_rows": 426}
    assert data.counts == {"read": 595, **dropped, "used": 50, "training_rows": 100}
    assert len(data.held_out) == 2 * 119


# Rows that are drawn


@pytest.mark.parametrize("options", [{}, {"held_out_share": 0.1}])
def test_fewer_rows_are_the_same_premises_for_every_seed_and_for_triplets_alike(options: dict[str, Any]) -> None:
    want = inli(INLIQuadruples(), train_rows=40, **options).train.column("premise")
    assert len(set(want)) == 40
    for seed in SEEDS:
        assert inli(INLIQuadruples(), train_rows=40, seed=seed, **options).train.column("premise") == want
        both = inli(INLITriplets("both"), train_rows=40, seed=seed, **options).train
        assert both.column("premise") == [premise for premise in want for _ in range(2)]
    assert inli(INLITriplets("explicit"), train_rows=40, **options).train.column("premise") == want
    whole = inli(INLIQuadruples(), **options).train.column("premise")
    assert [premise for premise in whole if premise in set(want)] == want, "in the order of the corpus"
    assert want != whole[:40], "drawn, not the first"


def test_more_rows_than_there_are_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        data = inli(INLITriplets("both"), train_rows=596)
    assert caplog.messages == ["data.train_rows=596, but there are only 595 rows; all are used"]
    assert data.counts == {"read": 595, "used": 595, "training_rows": 2 * 595}


@pytest.mark.parametrize(
    ("make_rows", "apart"), [(INLIQuadruples, 60), (INLITriplets, 60), (NLITriplets, 9), (Sentences, 41)]
)
def test_a_share_held_out_is_apart_from_training_and_the_same_for_every_seed(
    make_rows: type[RoleRows], apart: int
) -> None:
    def build(**options: Any) -> ContrastiveData:
        rows = make_rows()
        if isinstance(rows, Sentences):
            return make(rows, ["wiki1m/train"], held_out_share=0.1, **options)
        return (nli if isinstance(rows, NLITriplets) else inli)(rows, held_out_share=0.1, **options)

    data = build()
    held_out, train = places(data.held_out), places(data.train)
    assert len(set(held_out)) == apart
    assert not set(held_out) & set(train)
    if make_rows is not Sentences:
        assert not set(data.held_out.column("premise")) & set(data.train.column("premise"))
    for seed in SEEDS:
        assert places(build(seed=seed).held_out) == held_out
        assert places(build(seed=seed).train) == train
    fewer = build(train_rows=apart, held_out_rows=3)
    assert places(fewer.held_out) == held_out
    assert places(fewer.watched(fewer.roles)) == held_out[:3]
    assert set(places(fewer.train)) < set(train)


@pytest.mark.parametrize(("share", "rows"), [(0.0001, 2), (0.5, 205), (408 / 410, 408)])
def test_both_sides_of_a_share_have_two_rows_at_least(share: float, rows: int) -> None:
    data = make(Sentences(), ["wiki1m/train"], held_out_share=share)
    assert (len(data.held_out), len(data.train)) == (rows, 410 - rows)


INLI = ["inli/train"]
REFUSED: list[tuple[RoleRows, list[str], dict[str, Any], str]] = [
    (Sentences(), ["wiki1m/train"], {"held_out_share": 0.998}, r"held_out_share: 0\.998 of 410 sentences"),
    (Sentences(), ["wiki1m/train"], {"held_out_share": 0.0}, r"held_out_share: must be in \(0, 1\), got 0\.0"),
    (Sentences(), ["wiki1m/train"], {"held_out_share": 1.0}, r"held_out_share: must be in \(0, 1\), got 1\.0"),
    (INLIQuadruples(), INLI, {}, r"held_out: give splits, or data\.held_out_share, and not both"),
    (INLIQuadruples(), INLI, {"held_out": ["inli/val"], "held_out_share": 0.1}, "held_out: give splits, or"),
    (INLIQuadruples(), ["inli-test"], {"held_out": ["inli/val"]}, "train: 'inli-test' is not of the form corpus/split"),
    (INLIQuadruples(), INLI, {"held_out": ["inli-test"]}, "held_out: 'inli-test' is not of the form"),
    (INLIQuadruples(), INLI, {"held_out": INLI, "excluded": ["inli-test"]}, "excluded: 'inli-test' is not of the form"),
    (NLITriplets(), ["simcse_nli/train", "snli/train"], {"held_out_share": 0.1, "weights": [1, 2]}, "weights: rows of"),
    (Sentences(), ["wiki1m/train", "wikitext2/valid"], {"held_out_share": 0.1, "weights": [1, 2]}, "weights: rows of"),
    (
        INLIQuadruples(),
        ["inli/train", "inli/val"],
        {"held_out": ["inli/val"], "weights": [1, 2], "llm_rows_together": 4},
        r"weights: cannot be combined with data\.llm_rows_together",
    ),
    (
        INLIQuadruples(),
        ["inli/train", "inli/val"],
        {"held_out": ["inli/val"], "weights": [1, 3], "batch_size": 512},
        "weights: some rows are drawn 3 times an epoch, which has 1 whole batches",
    ),
]


@pytest.mark.parametrize(("rows", "train", "options", "message"), REFUSED)
def test_what_is_refused(rows: RoleRows, train: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=rf"data\.{message}"):
        make(rows, train, **options)


# Roles


def test_the_names_of_contrastive_learning_give_the_tokens_of_those_of_nli() -> None:
    first, second = nli(), nli()
    ours, theirs = ("premise", "entailment", "contradiction"), ("anchor", "positive", "negative")
    first.use(ours)
    second.use(theirs)
    want, found = trained_on(first), trained_on(second)
    assert (tuple(want), tuple(found)) == (ours, theirs)
    assert list(want.values()) == list(found.values())
    assert want == {role: Words()(first.train.column(role)) for role in ours}


def test_only_the_roles_in_use_are_in_batches_also_when_they_change() -> None:
    data = inli(INLIQuadruples(), train_rows=16)
    assert tuple(trained_on(data)) == data.roles
    assert data.sentences == 4 * 16
    data.use(("premise", "contradiction"))
    assert trained_on(data) == {role: Words()(data.train.column(role)) for role in ("premise", "contradiction")}
    assert data.sentences == 2 * 16


@pytest.mark.parametrize(
    ("data", "roles"),
    [
        (lambda: nli(NLITriplets(contradiction=False)), ("anchor", "positive", "negative")),
        (lambda: nli(NLITriplets(contradiction=False)), ("premise", "entailment", "contradiction")),
        (lambda: inli(INLIQuadruples()), ("anchor", "positive", "negative")),
        (lambda: make(Sentences(), ["wiki1m/train"], held_out_share=0.1), ("premise",)),
    ],
)
def test_a_role_that_the_rows_lack_is_told_with_those_they_have(data: Any, roles: tuple[str, ...]) -> None:
    built = data()
    with pytest.raises(ConfigError) as caught:
        built.use(roles)
    assert f"the method trains on the roles {roles}, but this data has {built.roles}" in str(caught.value)


# Long sentences


def test_training_sentences_are_cut_and_counted() -> None:
    whole, cut = nli(), nli(max_tokens=6)
    lengths = [len(ids) for role in trained_on(whole).values() for ids in role]
    assert trained_on(cut) == {role: [ids[:6] for ids in found] for role, found in trained_on(whole).items()}
    assert max(lengths) > 9
    for limit in (4, 6, 9, 1000):
        assert whole.longer_than(limit) == sum(length > limit for length in lengths)
        assert cut.longer_than(limit) == sum(length > min(limit, 6) for length in lengths)
    assert 0 < cut.longer_than(1000) < len(lengths) == cut.sentences
    assert cut.held_out.column("premise") == whole.held_out.column("premise")


def test_a_batch_is_no_wider_than_the_cut() -> None:
    data = nli(max_tokens=5)
    data.setup()
    batch = data.collate(torch.tensor([3, 1]))
    for tokens in batch["roles"].values():
        assert tokens.ids.shape[1] <= 5
    assert batch["index"].tolist() == [3, 1]


# Pairs that are evaluated

RAIN, SNOW, WIND = "It rains in the valley.", "Snow lies on the hill.", "The wind shakes a door."


def put_snli(folder: Path, split: str, rows: list[tuple[str, str, str]]) -> None:
    path = folder / f"SNLI/snli_1.0/snli_1.0_{split}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [dict(zip(("sentence1", "sentence2", "gold_label"), row, strict=True)) for row in rows]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in cells), encoding="utf-8")
    return path


@pytest.fixture
def leaking(tmp_path: Path) -> Path:
    """Two training sets in their official layouts, of which a test set has some pairs, word for word or nearly."""
    training = []
    for premise in (RAIN, SNOW, WIND):
        training += [(premise, f"{premise[:-1]} now.", "entailment"), (premise, "Nothing happens.", "contradiction")]
    put_snli(tmp_path, "train", training)
    put_snli(tmp_path, "dev", [("A boat sails.", "It moves.", "entailment"), ("A boat sails.", "No.", "contradiction")])
    put_snli(
        tmp_path,
        "test",
        [
            (RAIN, "Nothing happens.", "contradiction"),
            ("snow lies on the hill now", SNOW, "neutral"),  # turned round, other case and punctuation
            ("Bees hum .", "Bees are silent .", "contradiction"),  # of a triplet, tokenised
            (WIND, "A door is shaken by the wind.", "entailment"),  # a premise alone is no pair
        ],
    )
    ready = tmp_path / "simcse/nli_for_simcse.csv"
    ready.parent.mkdir()
    with ready.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(
            [
                ("sent0", "sent1", "hard_neg"),
                ("Bees hum.", "Insects make a sound.", "Bees are silent."),
                ("Bees hum.", "Insects hum.", "Bees sleep."),
            ]
        )
    return tmp_path


def build(folder: Path, excluded: Sequence[str]) -> ContrastiveData:
    options = {"held_out": ["snli/dev"], "excluded": excluded, "data_dir": str(folder)}
    return make(NLITriplets(), ["simcse_nli/train", "snli/train"], **options)


def test_pairs_that_are_evaluated_never_reach_training(leaking: Path, caplog: pytest.LogCaptureFixture) -> None:
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
    assert caplog.messages == ["3 training rows have a sentence pair of snli/dev, snli/test and are left out"]
    seen = [ids for role in trained_on(data).values() for ids in role]
    for sentence in ("Bees are silent.", f"{SNOW[:-1]} now.", RAIN):
        assert Words()([sentence])[0] not in seen
    assert len(build(leaking, []).train) == 5, "without it they do"


def test_digests_hold_every_file_that_decided_the_rows(leaking: Path) -> None:
    names = {split: f"SNLI/snli_1.0/snli_1.0_{split}.jsonl" for split in ("train", "dev", "test")}
    simcse = "simcse/nli_for_simcse.csv"

    def sha256(*found: str) -> dict[str, str]:
        return {name: hashlib.sha256((leaking / name).read_bytes()).hexdigest() for name in found}

    assert build(leaking, ["snli/test"]).digests == sha256(simcse, *names.values())
    assert build(leaking, []).digests == sha256(simcse, names["train"], names["dev"])


def test_a_training_set_that_is_evaluated_whole_is_told(leaking: Path) -> None:
    with pytest.raises(DataError, match=r"simcse/nli_for_simcse\.csv.*: no premise has both"):
        build(leaking, ["snli/train", "simcse_nli/train"])


def test_rows_that_share_a_sentence_are_held_out_together() -> None:
    rows = Rows.of({"premise": list("aabbccddee"), "hypothesis": list("0123456789")})
    left, apart = hold_out(made_of(rows, range(10)), 0.4, of="premise")
    assert len(apart) == 4
    assert not set(left.column("premise")) & set(apart.column("premise"))
    assert left.counts == {"read": 10, "dropped: held out": 4}


# Rows of one's own, with holes and weights

HOLES = [
    ("Ann closed the window.", "Ann shut a window.", "Ann felt cold.", "Ann opened it."),
    ("Ben looked at his watch again.", "Ben looked at a watch.", "Ben is in a hurry.", ""),
    ("The kettle whistled for a while.", "", "Nobody was in the kitchen.", "The kettle made no sound."),
    ("Only the neutral one is here.", "", "", ""),
    ("Carl left his plate half full.", "Carl had a plate.", "", ""),
    ("Dora hums whenever it rains.", "", "", "Dora is silent in the rain."),
]
HEADER = ("premise", "explicit_entailment", "implied_entailment", "contradiction", "neutral")


@pytest.fixture
def holes(tmp_path: Path) -> str:
    return put_own(tmp_path / "holes.csv", [(*row, "Something else happened.") for row in HOLES])


def put_own(path: Path, rows: Sequence[Sequence[str]]) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])
    return str(path)


def with_holes(own: str, rows: RoleRows | None = None, **options: Any) -> ContrastiveData:
    return make(rows or INLIQuadruples(), ["inli/train", own], **({"held_out": ["inli/val"]} | options))


def index_of(data: ContrastiveData, epochs: int = 1) -> list[list[int]]:
    loader = data.train_dataloader()
    return [batch["index"].tolist() for _ in range(epochs) for batch in loader]


def test_rows_with_holes_reach_the_batches_of_the_roles_they_have(holes: str) -> None:
    data = with_holes(holes)
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
    assert data.sentences == 600 + 3 * 598
    batch = data.collate(torch.tensor([599, 0, 596]))["roles"]
    assert {role: tokens.rows.tolist() for role, tokens in batch.items()} == {
        "premise": [0, 1, 2],
        "explicit_entailment": [1, 2],
        "implied_entailment": [1, 2],
        "contradiction": [0, 1],
    }
    assert batch["contradiction"].ids[0][batch["contradiction"].mask[0]].tolist() == Words()([HOLES[5][3]])[0]
    none = data.collate(torch.tensor([599, 597]))["roles"]["explicit_entailment"]
    assert (len(none), none.rows.tolist(), none.ids.shape) == (0, [], (0, 0))
    assert data.longer_than(4) == sum(
        len(s.split()) > 4 for role in data.roles for s in data.train.column(role) if s is not None
    )
    assert not data.has_llm_rows


def test_rows_with_holes_from_the_token_cache_are_the_same(holes: str, tmp_path: Path) -> None:
    def tokens() -> dict[str, list[list[int]]]:
        data = with_holes(holes, cache_dir=str(tmp_path))
        data.setup()
        roles = data.collate(torch.arange(590, 600))["roles"]
        return {
            role: [ids[mask].tolist() for ids, mask in zip(t.ids, t.mask, strict=True)] for role, t in roles.items()
        }

    made = tokens()
    assert len(list((tmp_path / "tokens").iterdir())) == 4
    assert tokens() == made


def test_excluded_pairs_of_rows_with_holes(holes: str, tmp_path: Path) -> None:
    others = put_own(
        tmp_path / "evaluated.csv",
        [
            ("dora hums whenever it rains", "", "", "Dora is silent, in the rain!", ""),
            ("Ann closed the window.", *"ab", "", ""),
        ],
    )
    data = with_holes(holes, excluded=[others])
    left = data.train.column("premise")[595:]
    assert left == [HOLES[row][0] for row in (0, 1, 2, 4)], "what both lack is no pair"
    assert data.counts["dropped: pair of a dev or test set"] == 1


@pytest.mark.parametrize("weights", [None, [1, 0.5]])
def test_a_share_held_out_and_fewer_rows_of_rows_with_holes(holes: str, weights: list[float] | None) -> None:
    data = with_holes(holes, held_out=None, held_out_share=0.5, train_rows=200, weights=weights)
    assert len(data.train) == 200
    assert not set(data.train.column("premise")) & set(data.held_out.column("premise"))
    watched = data.watched(data.roles)
    assert all(None not in watched.column(role) for role in data.roles)
    counts = data.counts
    assert counts["read"] == counts["used"] + sum(n for key, n in counts.items() if key.startswith("dropped: "))


def test_held_out_rows_that_lack_a_role_are_told_by_the_key_they_come_from(holes: str) -> None:
    data = with_holes(holes, held_out=[holes])
    with pytest.raises(
        DataError, match=r"1 of 5 held-out rows have the roles .*: give data\.held_out splits that have"
    ):
        data.watched(data.roles)


def test_a_role_that_no_row_has_is_told(tmp_path: Path) -> None:
    own = put_own(
        tmp_path / "own.csv", [(f"It is {k}.", f"The number {k} is.", f"Not {k + 1}.", "", "") for k in range(9)]
    )
    data = make(INLIQuadruples(), [own], held_out=["inli/val"])
    with pytest.raises(
        DataError, match=r"not one of 9 training rows \(.*own\.csv\) has a sentence of contradiction, which"
    ):
        data.use(data.roles)
    data.use(data.roles[:3])
    assert sorted(trained_on(data)) == sorted(data.roles[:3])


def test_a_role_that_no_row_has_may_be_one_that_the_method_does_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = put_own(
        tmp_path / "own.csv", [(f"It is {k}.", f"The number {k} is.", f"Not {k + 1}.", "", "") for k in range(9)]
    )
    data = make(INLIQuadruples(), [own], held_out=["inli/val"])
    data.use(data.roles, optional=data.roles[1:])
    assert "none of the 9 training rows has a sentence of contradiction; terms of the loss" in caplog.text
    data.setup()
    batch = next(iter(data.train_dataloader()))
    assert {role: len(tokens) > 0 for role, tokens in batch["roles"].items()} == {
        "premise": True,
        "explicit_entailment": True,
        "implied_entailment": True,
        "contradiction": False,
    }
    with pytest.raises(DataError, match="has a sentence of contradiction, which"):
        data.use(("premise", "contradiction"), optional=("contradiction",))


def test_weights_of_one_change_nothing(holes: str) -> None:
    plain, ones = with_holes(holes), with_holes(holes, weights=[1, 1.0])
    assert index_of(ones, 3) == index_of(plain, 3)
    assert ones.counts == plain.counts
    assert ones.train.names == plain.train.names


def test_weighted_rows_by_source_and_their_account(holes: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        data = with_holes(holes, weights=[0.5, 3])
    assert caplog.messages == [
        f"an epoch draws 313 rows: 298 of inli/train (595 rows of weight 0.5), 15 of {holes} (5 rows of weight 3)"
    ]
    assert {key: count for key, count in data.counts.items() if key.startswith("rows an epoch")} == {
        "rows an epoch": 313,
        "rows an epoch: inli/train": 298,
        f"rows an epoch: {holes}": 15,
    }
    assert data.counts["training_rows"] == 600
    data.setup()
    loader = data.train_dataloader()
    for _ in range(2):
        drawn = [row for batch in loader for row in batch["index"].tolist()]
        assert len(drawn) == 313
        assert sorted(row for row in drawn if row >= 595) == [row for row in range(595, 600) for _ in range(3)]


def test_weights_follow_the_source_of_triplets(holes: str) -> None:
    data = with_holes(holes, INLITriplets("both"), weights=[1, 2])
    assert data.counts["rows an epoch"] == 2 * 595 + 2 * 3, "Ann's two and the kettle's one, twice"
    plain = make(Sentences(), ["wiki1m/train", "wikitext2/valid"], held_out_share=0.1)
    assert "rows an epoch" not in plain.counts


def test_a_weighted_epoch_is_taken_up_in_its_middle(holes: str) -> None:
    want = index_of(with_holes(holes, weights=[0.5, 3]), 2)
    first = with_holes(holes, weights=[0.5, 3])
    batches = iter(first.train_dataloader())
    found = [next(batches)["index"].tolist() for _ in range(7)]
    second = with_holes(holes, weights=[0.5, 3])
    second.load_state_dict(first.state_dict())
    assert found + index_of(second, 2) == want
    assert index_of(with_holes(holes, weights=[0.5, 3], seed=1), 2) != want


@pytest.mark.parametrize(
    ("weights", "faults"),
    [
        ([1], [r"1 numbers for the 2 sources of data\.train \(inli/train, "]),
        ([1, 0], [r"must be in \(0, 1000\], got 0;"]),
        ([1, -0.5], [r"must be in \(0, 1000\], got -0\.5"]),
        ([float("nan"), float("inf"), 2], ["3 numbers", "must .* got nan", "must .* got inf"]),
        ([1, 1e9], [r"must be in \(0, 1000\], got 1000000000.0"]),
    ],
)
def test_weights_that_make_no_sense_are_told_together(holes: str, weights: Any, faults: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        with_holes(holes, weights=weights)
    assert len(caught.value.faults) == len(faults)
    for fault, want in zip(caught.value.faults, faults, strict=True):
        assert re.match(rf"data\.weights: {want}", fault), fault
