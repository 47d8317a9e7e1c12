"""Hybrids: LLM rows in place of the sentences they were made from, one hold-out for all, and how they are gathered."""

import json
import logging
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from lightning_cse.data import (
    ContrastiveData,
    Hybrid,
    NLITriplets,
    Rows,
    Sentences,
    SourceFile,
    TokenShuffle,
    side_file,
    write_provenance,
)
from lightning_cse.data.drawing import ANOTHER_ANCHOR, used
from lightning_cse.data.hybrid import PATTERNS, as_llm_rows
from lightning_cse.data.sampler import BatchLoader
from lightning_cse.data.sources import read_sources
from lightning_cse.errors import ConfigError, DataError

STS = PATTERNS["sts"]
SENTENCES = [f"sentence number {k}" for k in range(60)]


class Words:
    """A tokenize function whose tokens are words, and that can turn them back."""

    digest = "words"
    known: ClassVar[dict[int, str]] = {}

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        ids = {
            word: zlib.crc32(word.encode()) >> 1
            for sentence in sentences
            for word in sentence.split()
        }
        self.known.update({number: word for word, number in ids.items()})
        return [[ids[word] for word in sentence.split()] for sentence in sentences]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(self.known[number] for number in sentence) for sentence in ids]


def written(anchor: str, pattern: str = "sts") -> dict[str, str]:
    return {
        role: anchor if role == "anchor" else f"{role} of {anchor}" for role in PATTERNS[pattern]
    }


def put_rows(path: Path, anchors: Sequence[str], pattern: str = "sts") -> str:
    path.write_text("".join(f"{json.dumps(written(anchor, pattern))}\n" for anchor in anchors))
    return str(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus of 60 sentences, one of them twice, of which an LLM has extended 24, and two that are not in it."""
    (tmp_path / "corpus.txt").write_text("\n".join([*SENTENCES, "sentence number 4"]) + "\n")
    (tmp_path / "few.txt").write_text("sentence number 1\n")
    for pattern in PATTERNS:
        put_rows(
            tmp_path / f"{pattern}.jsonl",
            [*SENTENCES[4:52:2], "a stranger", "another stranger"],
            pattern,
        )
    return tmp_path


def hybrid(folder: Path, pattern: str = "sts", file: str | None = None) -> Hybrid:
    return Hybrid(Sentences(), [str(folder / (file or f"{pattern}.jsonl"))], pattern, str(folder))


def data(folder: Path, rows: Any, **options: Any) -> ContrastiveData:
    given: dict[str, Any] = {
        "batch_size": 8,
        "drop_last": False,
        "seed": 0,
        "data_dir": str(folder),
    }
    given |= {"held_out_share": 0.2} | options
    return ContrastiveData(train=[str(folder / "corpus.txt")], rows=rows, tokenize=Words(), **given)


def own(rows: Rows) -> list[str]:
    """Return the anchors that are sentences of the corpus."""
    return [anchor for anchor in rows.column("anchor") if "stranger" not in anchor]


def llm_anchors(rows: Rows) -> set[str]:
    return {row["anchor"] for row in rows if row["negative"] is not None}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_llm_rows_stand_where_their_sentences_stood(
    folder: Path, pattern: str, plain: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        built = hybrid(folder, pattern)(
            read_sources([str(folder / "corpus.txt")], folder, key="data.train")
        )
    assert built.column("anchor") == [
        *SENTENCES,
        "sentence number 4",
        "a stranger",
        "another stranger",
    ]
    assert built.column("added") == [False] * 61 + [True] * 2
    extended = {*range(4, 52, 2), 61, 62}
    for number, row in enumerate(plain(built)):
        alone = dict.fromkeys(PATTERNS[pattern]) | {"anchor": row["anchor"]}
        assert row == (written(row["anchor"], pattern) if number in extended else alone)
    # 61 sentences, one of them twice, and 26 LLM rows; the 24 rows that are replaced are gone.
    assert built.counts == {"read": 87, "dropped: an LLM row stands for it": 24}
    assert used(built) == 63
    assert "2 of 26 LLM rows" in caplog.text
    assert f"{pattern}.jsonl:25" in caplog.text
    assert built.where(6).endswith(f"{pattern}.jsonl:2")


def test_the_hold_out_is_one_for_all_settings_of_a_domain(
    folder: Path, adds_up: Callable[..., bool]
) -> None:
    settings = [
        data(folder, Sentences()),
        data(folder, Sentences(), augmentation=TokenShuffle()),
        data(folder, hybrid(folder, "sts")),
        data(folder, hybrid(folder, "nli"), seed=3),
        data(folder, hybrid(folder, "sts"), llm_rows=5),
    ]
    distinct = {tuple(dict.fromkeys(own(setting.held_out))) for setting in settings}
    assert [len(anchors) for anchors in distinct] == [12]
    for setting in settings:
        assert not set(setting.held_out.column("anchor")) & set(setting.train.column("anchor"))
        assert adds_up(setting.counts)


def test_a_setting_of_llm_rows_is_watched_on_llm_rows(folder: Path) -> None:
    share, llm_rows = {"held_out_rows": 3, "held_out_share": 0.4}, str(folder / "sts.jsonl")
    setting = data(folder, hybrid(folder), **share)
    watched = setting.watched(STS)
    first = [row["anchor"] for row in setting.held_out if row["negative"] is not None][:3]
    assert watched.column("anchor") == first
    assert all(None not in row.values() for row in watched)
    plain = data(folder, Sentences(), watched_in=[llm_rows], **share)
    assert plain.watched(["anchor"]).column("anchor") == first, (
        "the same sentences, to compare with"
    )
    assert llm_rows in plain.digests, "what decides which ones"
    assert data(folder, Sentences(), **share).watched(["anchor"]).column("anchor") != first
    few = data(folder, hybrid(folder), watched_in=[str(folder / "few.txt")])
    with pytest.raises(
        DataError,
        match=r"0 of 1\d held-out rows have the roles anchor, .*raise data.held_out_share",
    ):
        few.watched(STS)


def test_all_settings_of_a_domain_watch_the_same_sentences_once_each(folder: Path) -> None:
    put_rows(
        folder / "nli.jsonl", SENTENCES[4:40:2], "nli"
    )  # other ones than sts.jsonl, which has strangers too
    both = [str(folder / f"{pattern}.jsonl") for pattern in PATTERNS]
    share: dict[str, Any] = {"held_out_share": 0.9, "watched_in": both}
    settings = [
        data(folder, rows, **share)
        for rows in (Sentences(), hybrid(folder, "sts"), hybrid(folder, "nli"))
    ]
    settings.append(data(folder, Sentences(), augmentation=TokenShuffle(), **share))
    roles = (["anchor"], STS, PATTERNS["nli"], ["anchor", "positive"])
    plain, *others = [
        each.watched(some).column("anchor") for each, some in zip(settings, roles, strict=True)
    ]
    held_out = own(settings[0].held_out)
    assert held_out.count("sentence number 4") == 2, (
        "this one is in the corpus twice, and so is never watched"
    )
    assert plain == [s for s in held_out if s in SENTENCES[6:40:2]]
    assert others == [plain] * 3


def test_without_a_hold_out_every_row_is_trained_on(
    folder: Path, adds_up: Callable[..., bool]
) -> None:
    whole, some = (
        data(folder, hybrid(folder), held_out_share=0, llm_rows=count) for count in (None, 20)
    )
    assert (len(whole.held_out), len(whole.train), whole.counts["llm_rows"]) == (0, 63, 26)
    assert some.counts["llm_rows"] == 20, (
        "as many as asked for, and not those that are left of them"
    )
    assert adds_up(whole.counts)
    assert len(data(folder, Sentences(), augmentation=TokenShuffle(), held_out_share=0).train) == 61


def test_fewer_llm_rows_are_a_draw_of_those_to_train_on_and_the_others_stay_sentences(
    folder: Path, adds_up: Callable[..., bool], caplog: pytest.LogCaptureFixture
) -> None:
    whole, none, few, more = (
        data(folder, hybrid(folder), llm_rows=count) for count in (None, 0, 6, 12)
    )
    assert [len(llm_anchors(setting.train)) for setting in (none, few, more)] == [0, 6, 12]
    assert [setting.counts.get("llm_rows") for setting in (none, few, more)] == [None, 6, 12]
    assert llm_anchors(few.train) < llm_anchors(more.train) < llm_anchors(whole.train)
    for setting in (none, few, more):
        assert setting.held_out.column("anchor") == whole.held_out.column("anchor"), (
            "what is watched is the same"
        )
        assert list(setting.watched(STS)) == list(whole.watched(STS))
        assert own(setting.train) == own(whole.train)
        added = [row for row in setting.train if "stranger" in row["anchor"]]
        assert all(row["negative"] is not None for row in added), (
            "what only an LLM row brought is gone with it"
        )
        assert adds_up(setting.counts)
    data(folder, hybrid(folder), llm_rows=100)
    assert "data.llm_rows=100, but there are only" in caplog.text


def test_fewer_rows_are_the_same_sentences_of_the_corpus_for_all_settings(folder: Path) -> None:
    plain, sts = (data(folder, rows, train_rows=20) for rows in (Sentences(), hybrid(folder)))
    assert len(plain.train) == len(sts.train) == 20
    assert len(own(sts.train)) == 19
    assert Counter(own(sts.train)) < Counter(plain.train.column("anchor"))
    put_rows(folder / "sts.jsonl", [f"stranger {k}" for k in range(60)])
    mixed = data(folder, hybrid(folder), train_rows=20)
    assert len(own(mixed.train)) == 10, "own and added ones by their shares"
    assert set(own(mixed.train)) < set(plain.train.column("anchor"))


def test_what_is_evaluated_is_no_llm_row_to_train_on(folder: Path) -> None:
    before = data(folder, hybrid(folder))
    leak = next(row for row in before.train if row["negative"] is not None)
    path = put_rows(folder / "leak.jsonl", [leak["anchor"]])
    after = data(folder, hybrid(folder), excluded=[path])
    assert leak not in list(after.train)
    assert len(after.train) == len(before.train) - 1
    assert after.counts["dropped: pair of a dev or test set"] == 1
    assert list(after.held_out) == list(before.held_out)
    assert path in after.digests


def test_a_batch_says_which_of_its_rows_have_a_role(folder: Path) -> None:
    setting = data(folder, hybrid(folder))
    setting.use(STS)
    setting.setup()
    seen: Counter[str] = Counter()
    for batch in setting.train_dataloader():
        rows = [setting.train[int(index)] for index in batch["index"]]
        for role in STS:
            tokens = batch["roles"][role]
            there = [k for k, row in enumerate(rows) if row[role] is not None]
            assert tokens.rows.tolist() == there
            ids = [tokens.ids[k][tokens.mask[k]].tolist() for k in range(len(tokens))]
            assert ids == Words()([rows[k][role] for k in there])
            seen[role] += len(there)
    assert seen["anchor"] == len(setting.train)
    assert seen["negative"] == len(llm_anchors(setting.train)) > 0
    assert setting.sentences == sum(seen.values())


def test_without_llm_rows_their_roles_are_empty(folder: Path) -> None:
    setting = data(folder, hybrid(folder), llm_rows=0, llm_rows_together=4)
    setting.use(STS)
    setting.setup()
    for batch in setting.train_dataloader():
        assert len(batch["roles"]["anchor"]) == len(batch["index"])
        assert len(batch["roles"]["negative"]) == 0


@pytest.mark.parametrize("llm_rows", [0, None])
def test_without_a_single_llm_row_there_is_a_warning_unless_none_are_wanted(
    llm_rows: int | None, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setting = data(folder, hybrid(folder), llm_rows=llm_rows)
    setting.train = setting.train.select(np.flatnonzero(~setting.train.has("negative")))
    setting.use(STS)
    warned = "training rows is an LLM row: see data.train_rows and data.llm_rows" in caplog.text
    assert warned == (llm_rows is None)


def test_augmented_positives_are_text_made_once(folder: Path) -> None:
    one, other = (
        data(folder, Sentences(), augmentation=TokenShuffle(), seed=seed) for seed in (0, 1)
    )
    assert one.roles == ("anchor", "positive")
    assert list(one.train) == list(other.train)
    pairs = [(row["anchor"], row["positive"]) for part in (one.train, one.held_out) for row in part]
    assert all(Counter(a.split()) == Counter(b.split()) for a, b in pairs)
    assert any(a != b for a, b in pairs)
    assert one.train.where(0).endswith(
        "corpus.txt:" + str(int(one.train[0]["anchor"].split()[-1]) + 1)
    )


def test_what_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.augmentation"):
        data(folder, hybrid(folder), augmentation=TokenShuffle())
    with pytest.raises(ConfigError, match=r"data\.rows\.llm: names no source"):
        data(folder, Hybrid(Sentences(), [], "sts", str(folder)))
    with pytest.raises(DataError, match=r"data\.rows\.llm: .*nowhere\.jsonl"):
        data(folder, hybrid(folder, file="nowhere.jsonl"))
    with pytest.raises(
        DataError, match=r"nli\.jsonl: no LLM rows of the pattern 'sts'.*intermediate"
    ):
        data(folder, hybrid(folder, file="nli.jsonl"))
    put_rows(folder / "twice.jsonl", ["a", "b", "a"])
    with pytest.raises(
        DataError, match=r"twice\.jsonl:3: a second LLM row for the anchor of .*twice\.jsonl:1"
    ):
        data(folder, hybrid(folder, file="twice.jsonl"))


# Corpora that stand in for LLM rows


def table(**columns: list[str]) -> Rows:
    return Rows.of(columns, files=[SourceFile("x", "/x", "")])


def test_corpora_stand_in_for_llm_rows(plain: Callable[..., Any]) -> None:
    split = table(sentence=["a b", "c d"], simple1=["a", "c"], simple2=["b", "d"])
    assert plain(as_llm_rows(split, "sts")) == [
        {"anchor": "a b", "positive": "a b", "intermediate": "a", "negative": ANOTHER_ANCHOR},
        {"anchor": "c d", "positive": "c d", "intermediate": "c", "negative": ANOTHER_ANCHOR},
    ]
    explicit = {"explicit_entailment": ["e", "f", "g"], "implied_entailment": ["m"] * 3}
    rows = as_llm_rows(table(premise=["p", "q", "p"], contradiction=["c"] * 3, **explicit), "nli")
    assert plain(rows) == [
        {"anchor": "p", "positive": "e", "negative": "c"},
        {"anchor": "q", "positive": "f", "negative": "c"},
    ]
    assert rows.counts == {"read": 3, "dropped: repeated anchor": 1}
    with pytest.raises(DataError, match="pattern 'nli'"):
        as_llm_rows(split, "nli")


def test_a_stand_in_takes_its_negative_from_its_own_side_of_the_hold_out(
    tmp_path: Path, put: Callable[[str, str], Path]
) -> None:
    for split in ("tune", "validation", "test"):
        put(
            f"text/wiki-split/{split}.tsv",
            "".join(f"sentence {k} of\tsentence {k} <::::> of\n" for k in range(40)),
        )
    put("corpus.txt", "".join(f"sentence {k} of\n" for k in range(40)))
    setting = data(tmp_path, Hybrid(Sentences(), ["wiki_split/train"], "sts", str(tmp_path)))
    for side in (setting.train, setting.held_out):
        anchors, negatives = side.column("anchor"), side.column("negative")
        assert sorted(anchors) == sorted(negatives)
        assert all(a != b for a, b in zip(anchors, negatives, strict=True))


def test_premises_of_triplets_are_the_corpus_of_the_nli_domain(folder: Path) -> None:
    triplets = table(premise=["p", "q", "r"], entailment=["e"] * 3, contradiction=["c"] * 3)
    built = Hybrid(
        NLITriplets(), [put_rows(folder / "few.jsonl", ["q"], "nli")], "nli", str(folder)
    )([triplets])
    assert [row["positive"] for row in built] == [None, "positive of q", None]


# How LLM rows are gathered


def loader(together: int, *, rows: int = 64, every: int = 4) -> BatchLoader:
    gathered = torch.arange(rows) % every == 0
    options = {
        "batch_size": 8,
        "drop_last": False,
        "seed": 0,
        "gathered": gathered,
        "together": together,
    }
    return BatchLoader(rows, lambda i: {"index": i}, **options)


@pytest.mark.parametrize("together", [1, 3, 5, 16, 48])
def test_gathered_rows_wait_until_enough_have_come(together: int) -> None:
    made = loader(together)
    plain = BatchLoader(64, lambda i: {"index": i}, batch_size=8, drop_last=False, seed=0)
    waiting: list[int] = []
    for _ in range(3):  # epochs; those that wait are carried over
        for batch, drawn in zip(made, plain, strict=True):
            waiting += [row for row in drawn["index"].tolist() if row % 4 == 0]
            others = [row for row in drawn["index"].tolist() if row % 4]
            joined = [row for row in batch["index"].tolist() if row % 4 == 0]
            assert [row for row in batch["index"].tolist() if row % 4] == others
            if len(waiting) >= min(together, 16):
                assert joined == waiting
                waiting = []
            else:
                assert joined == []


def test_a_batch_that_would_lose_all_others_is_kept_whole() -> None:
    assert [len(batch["index"]) for batch in loader(16, rows=16, every=1)] == [8, 8]


def test_what_waits_is_part_of_the_position() -> None:
    whole = loader(5)
    want = [batch["index"].tolist() for _ in range(2) for batch in whole]
    for stop in range(1, 8):
        first, other = loader(5), loader(5)
        steps = iter(first)
        begun = [next(steps)["index"].tolist() for _ in range(stop)]
        other.load_state_dict(first.state_dict())
        assert begun + [batch["index"].tolist() for _ in range(2) for batch in other] == want


# Where the LLM rows come from


def test_where_llm_rows_come_from_goes_with_them_and_decides_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / "sts.jsonl"
    before = data(folder, hybrid(folder))
    assert before.provenance == {}
    write_provenance(path, {"model": "a-model", "pattern": {"name": "sts"}})
    write_provenance(folder / "nli.jsonl", {"model": "another"})
    known = data(folder, hybrid(folder), watched_in=[str(folder / "nli.jsonl")])
    assert known.provenance.keys() == {str(path)}, (
        "of rows that only say what is watched none is trained on"
    )
    found = known.provenance[str(path)]
    assert (found["model"], found["unchanged"], found["rows"]["count"]) == ("a-model", True, 26)
    assert data(folder, hybrid(folder)).digests == before.digests
    assert list(known.train) == list(before.train)
    path.write_text(path.read_text().replace("negative of", "opposite of"))
    edited = data(folder, hybrid(folder))
    caplog.clear()
    assert [edited.provenance[str(path)]["unchanged"] for _ in range(2)] == [False, False]
    assert len(caplog.records) == 1, "reported once, and only when somebody asks"
    side_file(path).write_text("{")
    assert data(folder, hybrid(folder)).provenance[str(path)].keys() == {"damaged"}
