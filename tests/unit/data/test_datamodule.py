"""The data module: an account that adds up, rows drawn once for all, and no evaluated pair among
those trained on.
"""

import hashlib
import json

import pytest
import torch
from data_modules import Words, batch_rows, data_module, ids_of

from lightning_cse import evaluation
from lightning_cse.data import (
    INLIQuadruples,
    INLITriplets,
    NLITriplets,
    Sentences,
    sample_dir,
    sentence_batches,
)
from lightning_cse.errors import ConfigError, DataError

INLI = ["inli/train"]
WIKI = ["wiki1m/train"]
NLI = ["simcse_nli/train", "snli/train", "mnli_nyu/train"]
QUADRUPLE = INLIQuadruples.roles


def inli(rows=None, **options):
    if "held_out_share" not in options:
        options["held_out"] = ["inli/val"]

    return data_module(INLI, rows or INLIQuadruples(), **options)


def places(rows):
    return list(zip(rows["file"], rows["line"], strict=True))


def trained_on(data):
    """Return the tokens of the training rows by role, in the order of the rows."""
    by_row = {}

    for batch in data.train_dataloader():
        for role, tokens in batch["roles"].items():
            rows = batch["index"][tokens.rows].tolist()
            by_row.setdefault(role, {}).update(zip(rows, ids_of(tokens), strict=True))

    return {role: [ids for _, ids in sorted(rows.items())] for role, rows in by_row.items()}


# The account and the rows that are drawn


@pytest.mark.parametrize("options", [{}, {"held_out_share": 0.1}])
def test_fewer_rows_are_the_same_premises_for_every_seed_and_scheme(options):
    want = inli(train_rows=40, **options).train["premise"][:]
    all_premises = inli(**options).train["premise"][:]

    assert (
        [premise for premise in all_premises if premise in set(want)] == want != all_premises[:40]
    )
    assert len(set(want)) == 40

    triplets = inli(INLITriplets("both"), train_rows=40, seed=2, **options).train

    assert triplets["premise"][:] == [premise for premise in want for _ in range(2)]


SHARES = [(INLITriplets(), INLI, 60), (NLITriplets(), NLI, 9), (Sentences(), WIKI, 41)]


@pytest.mark.parametrize(("rows", "train", "count"), SHARES)
def test_held_out_share_is_disjoint_and_the_same_for_every_seed(rows, train, count, adds_up):
    options = {"train": train, "rows": rows, "held_out_share": 0.1}
    data = data_module(**options)
    fewer = data_module(seed=1, train_rows=count, held_out_rows=3, **options)
    held_out = places(data.held_out)

    assert len(set(held_out)) == count
    assert not set(held_out) & set(places(data.train))
    assert places(fewer.held_out) == held_out
    assert places(fewer.watched(fewer.roles)) == held_out[:3]
    assert set(places(fewer.train)) < set(places(data.train))
    assert adds_up(fewer.counts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"held_out_share": 0.998}, r"held_out_share: 0\.998 of 410 sentences leaves too few"),
        ({"held_out": WIKI, "held_out_share": 0.1}, "held_out: cannot be combined"),
    ],
)
def test_settings_that_are_refused(options, message):
    with pytest.raises((ConfigError, DataError), match=rf"data\.{message}"):
        data_module(**{"train": WIKI, "rows": Sentences()} | options)


# Roles and tokens


def test_batches_have_the_roles_in_use():
    data = inli(train_rows=16)

    assert tuple(trained_on(data)) == data.roles

    roles = ("premise", "contradiction")
    data.use(roles)

    assert trained_on(data) == {role: Words()(data.train[role]) for role in roles}

    with pytest.raises(ConfigError, match=r"this data has premise, .*; missing: anchor, negative"):
        data.use(("anchor", "premise", "negative"))


# Pairs that are evaluated

RAIN = "It rains in the valley."
SNOW = "Snow lies on the hill."
WIND = "The wind shakes a door."
WEATHER = (RAIN, SNOW, WIND)
SPLITS = {
    "train": [
        *((premise, f"{premise[:-1]} now.", "entailment") for premise in WEATHER),
        *((premise, "Nothing happens.", "contradiction") for premise in WEATHER),
    ],
    "dev": [
        ("A boat sails.", "It moves.", "entailment"),
        ("A boat sails.", "No.", "contradiction"),
    ],
    "test": [
        (RAIN, "Nothing happens.", "contradiction"),
        ("snow lies on the hill now", SNOW, "neutral"),  # in the other order, case and punctuation
        ("Bees hum .", "Bees are silent .", "contradiction"),  # of a triplet, tokenised
        (WIND, "A door is shaken by the wind.", "entailment"),  # a premise alone is no pair,
    ],
}
TRIPLETS = """sent0,sent1,hard_neg
Bees hum.,Insects make a sound.,Bees are silent.
Bees hum.,Insects hum.,Bees sleep.
"""


@pytest.fixture
def leaking(put, tmp_path):
    """Two training sets in their official layouts, of which a test set has some pairs, word for
    word or nearly.
    """
    for split, rows in SPLITS.items():
        names = ("sentence1", "sentence2", "gold_label")
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        put(f"SNLI/snli_1.0/snli_1.0_{split}.jsonl", "\n".join(lines))

    put("simcse/nli_for_simcse.csv", TRIPLETS)
    options = {"held_out": ["snli/dev"], "data_dir": str(tmp_path)}

    return lambda *excluded: data_module(NLI[:2], NLITriplets(), excluded=excluded, **options)


def test_evaluated_pairs_are_not_trained_on(leaking, tmp_path):
    data = leaking("snli/dev", "snli/test")

    assert data.train["premise"][:] == ["Bees hum.", WIND]
    assert data.train["entailment"][:] == ["Insects hum.", f"{WIND[:-1]} now."]
    assert data.counts == {
        "read": 8,
        "dropped: pair of a dev or test set": 3,
        "dropped: premise without a contradiction": 1,
        "dropped: premise without an entailment": 1,
        "used": 3,
        "training_rows": 2,
    }
    assert len(leaking().train) == 5

    path = tmp_path / "SNLI/snli_1.0/snli_1.0_test.jsonl"
    digest = data.digests["SNLI/snli_1.0/snli_1.0_test.jsonl"]

    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(data.digests) == 4, "of every file that decides the rows"


# The user's own rows, some of which lack roles

OWN = """premise,explicit_entailment,implied_entailment,contradiction,neutral
Ann closed the window.,Ann shut a window.,Ann felt cold.,Ann opened it.,No.
Ben looked at his watch again.,Ben looked at a watch.,Ben is in a hurry.,,No.
The kettle whistled.,,Nobody was in the kitchen.,The kettle made no sound.,No.
Only the neutral one is here.,,,,No.
Carl left his plate half full.,Carl had a plate.,,,No.
Dora hums whenever it rains.,,,Dora is silent in the rain.,No.
"""


@pytest.fixture
def own_path(put):
    return str(put("own.csv", OWN))


def with_own(own_path, rows=None, **options):
    if "held_out_share" not in options:
        options.setdefault("held_out", ["inli/val"])

    return data_module([*INLI, own_path], rows or INLIQuadruples(), **options)


def test_rows_that_lack_roles_are_in_the_batches_of_the_others(own_path, tmp_path):
    data = with_own(own_path, cache_dir=str(tmp_path))

    assert data.counts == {
        "read": 601,
        "dropped: no entailment and no contradiction": 1,
        "used": 600,
        "training_rows": 600,
        **{f"rows with {role}": 598 for role in QUADRUPLE[1:]},
    }

    batch = data.collate(torch.tensor([599, 0, 596]))["roles"]
    rows = [batch[role].rows.tolist() for role in QUADRUPLE]

    assert rows == [[0, 1, 2], [1, 2], [1, 2], [0, 1]]
    assert ids_of(batch["contradiction"])[0] == Words()(["Dora is silent in the rain."])[0]


def test_too_few_held_out_rows_have_the_roles(own_path):
    with pytest.raises(DataError, match=r"1 of 5 held-out rows can be watched"):
        with_own(own_path, held_out=[own_path]).watched(QUADRUPLE)


def test_role_that_some_rows_lack(own_path):
    data = data_module([own_path], INLIQuadruples(), held_out=["inli/val"])

    with pytest.raises(DataError, match=r"own\.csv:3: no contradiction, .*; 2 of 5 training rows"):
        data.use(("premise", "contradiction"))

    data.use(QUADRUPLE, optional=QUADRUPLE[1:])
    batch = next(iter(data.train_dataloader()))

    assert [len(batch["roles"][role]) for role in QUADRUPLE] == [5, 3, 3, 3]


# Validation and test --------------------------------------------------------------------------


def sentences_in(loader):
    return [sentence for batch in loader for sentence in batch["sentences"]]


def test_validation_has_each_sentence_of_tasks_and_diagnostics_once(monkeypatch):
    folder = str(sample_dir())
    tasks = {
        "stsb": evaluation.STSB(data_dir=folder, dev_rows=30, test_rows=20),
        "snli": evaluation.NLI(data_dir=folder, dev="snli/dev", test="snli/test", dev_rows=20),
    }
    data = data_module(["simcse_nli/train"], NLITriplets())
    data.tasks = tasks
    data.watched_sentences = ["A sentence that only diagnostics watch.", "It rains.", "It rains."]
    expected = {*tasks["stsb"].sentences("dev"), *tasks["snli"].sentences("dev")}
    monkeypatch.setattr(sentence_batches, "TOKENS_AT_ONCE", 60)
    for watches in (True, False):  # with dropout, diagnostics embed them apart
        data.embeds_watched = watches
        loader = data.val_dataloader()
        sentences = sentences_in(loader)
        assert len(sentences) == len(set(sentences))
        assert {*sentences} == expected.union(data.watched_sentences if watches else ())
        assert len(list(loader)) == len(loader) > 3
        lengths = [length for batch in loader for length in batch["tokens"].lengths.tolist()]
        assert lengths == [len(sentence.split()) for sentence in sentences] == sorted(lengths)
        for batch in loader:
            count = len(batch["sentences"])
            assert count == 1 or count * int(batch["tokens"].lengths.max()) <= 60

    assert {*sentences_in(data.test_dataloader())} == {
        *tasks["stsb"].sentences("test"),
        *tasks["snli"].sentences("test"),
    }


def test_state_has_the_position_and_the_size_of_a_batch():
    data = data_module(["simcse_nli/train"], NLITriplets())
    assert data.state_dict() == {"position": None, "batch_size": 8}
    loader = iter(data.train_dataloader())
    first_batches = [next(loader)["index"].tolist() for _ in range(2)]
    state = data.state_dict()
    another = data_module(["simcse_nli/train"], NLITriplets(), batch_size=4)
    another.load_state_dict(state)
    assert another.batch_size == 8
    assert first_batches + batch_rows(another) == batch_rows(
        data_module(["simcse_nli/train"], NLITriplets())
    )
