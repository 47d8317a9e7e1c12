"""Hybrids: LLM rows in place of the sentences they were made from, one hold-out for all, and how they are gathered."""

from __future__ import annotations

import json
import logging
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

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
from lightning_cse.errors import ConfigError, DataError

STS = PATTERNS["sts"]


class Words:
    """A tokenize function whose tokens are words, and that can turn them back."""

    digest = "words"
    known: ClassVar[dict[int, str]] = {}

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        ids = {word: zlib.crc32(word.encode()) >> 1 for sentence in sentences for word in sentence.split()}
        self.known.update({number: word for word, number in ids.items()})
        return [[ids[word] for word in sentence.split()] for sentence in sentences]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(self.known[number] for number in sentence) for sentence in ids]


def sentences(count: int) -> list[str]:
    return [f"sentence number {k}" for k in range(count)]


def plain(rows: Rows) -> list[dict[str, Any]]:
    """Return the rows without the columns that say where they are from."""
    return [{name: row[name] for name in rows.names} for row in rows]


def written(anchor: str, pattern: str) -> dict[str, str]:
    return {role: anchor if role == "anchor" else f"{role} of {anchor}" for role in PATTERNS[pattern]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus of 60 sentences, one of them twice, of which an LLM has extended 24, and two that are not in it."""
    (tmp_path / "corpus.txt").write_text("\n".join([*sentences(60), "sentence number 4"]) + "\n")
    (tmp_path / "few.txt").write_text("sentence number 1\n")
    anchors = [*sentences(60)[4:52:2], "a stranger", "another stranger"]
    for pattern in PATTERNS:
        lines = [json.dumps(written(anchor, pattern)) for anchor in anchors]
        (tmp_path / f"{pattern}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def hybrid(folder: Path, pattern: str = "sts", **options: Any) -> Hybrid:
    return Hybrid(Sentences(), [str(folder / f"{pattern}.jsonl")], pattern, str(folder), **options)


def data(folder: Path, rows: Any, **options: Any) -> ContrastiveData:
    given: dict[str, Any] = {"batch_size": 8, "drop_last": False, "seed": 0, "data_dir": str(folder)}
    given |= {"held_out_share": 0.2} | options
    return ContrastiveData(train=[str(folder / "corpus.txt")], rows=rows, tokenize=Words(), **given)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_llm_rows_stand_where_their_sentences_stood(folder: Path, pattern: str, caplog: Any) -> None:
    from lightning_cse.data.sources import read_sources

    with caplog.at_level(logging.WARNING):
        built = hybrid(folder, pattern)(read_sources([str(folder / "corpus.txt")], folder, key="data.train"))
    assert built.column("anchor") == [*sentences(60), "sentence number 4", "a stranger", "another stranger"]
    assert built.column("added") == [False] * 61 + [True] * 2
    rows = plain(built)
    assert rows[60] == {role: "sentence number 4" if role == "anchor" else None for role in PATTERNS[pattern]}
    for row in [*rows[:60], *rows[61:]]:
        number = int(row["anchor"].split()[-1]) if "number" in row["anchor"] else 4
        if 4 <= number < 52 and number % 2 == 0:
            assert row == written(row["anchor"], pattern)
        else:
            assert row == {role: row["anchor"] if role == "anchor" else None for role in PATTERNS[pattern]}
    # 61 sentences, one of them twice, and 26 LLM rows; the 24 rows that are replaced are gone.
    assert built.counts == {"read": 87, "dropped: an LLM row stands for it": 24}
    assert used(built) == 63
    assert "2 of 26 LLM rows" in caplog.text
    assert f"{pattern}.jsonl:25" in caplog.text
    place = built.column("anchor").index("sentence number 6")
    assert built.where(place).endswith(f"{pattern}.jsonl:2")


def test_the_hold_out_is_one_for_all_settings_of_a_domain(folder: Path) -> None:
    settings = [
        data(folder, Sentences()),
        data(folder, Sentences(), augmentation=TokenShuffle()),
        data(folder, hybrid(folder, "sts")),
        data(folder, hybrid(folder, "nli"), seed=3),
        data(folder, hybrid(folder, "sts"), llm_rows=5),
    ]
    held_out = [[a for a in setting.held_out.column("anchor") if "stranger" not in a] for setting in settings]
    distinct = [list(dict.fromkeys(anchors)) for anchors in held_out]
    assert all(anchors == distinct[0] for anchors in distinct)
    assert len(distinct[0]) == 12
    for setting in settings:
        assert not set(setting.held_out.column("anchor")) & set(setting.train.column("anchor"))
        counts = setting.counts
        dropped = sum(count for reason, count in counts.items() if reason.startswith("dropped: "))
        assert counts["read"] == counts["used"] + dropped


def test_a_setting_of_llm_rows_is_watched_on_llm_rows(folder: Path) -> None:
    setting = data(folder, hybrid(folder), held_out_rows=3, held_out_share=0.4)
    watched = setting.watched(STS)
    assert len(watched) == 3
    assert all(None not in row.values() for row in watched)
    first = [row["anchor"] for row in setting.held_out if row["negative"] is not None][:3]
    assert watched.column("anchor") == first
    share = {"held_out_rows": 3, "held_out_share": 0.4}
    plain = data(folder, Sentences(), watched_in=[str(folder / "sts.jsonl")], **share)
    assert plain.watched(["anchor"]).column("anchor") == first, "the same sentences, to compare with"
    assert data(folder, Sentences(), **share).watched(["anchor"]).column("anchor") != first


def test_too_few_rows_to_watch_are_told(folder: Path) -> None:
    setting = data(folder, hybrid(folder), watched_in=[str(folder / "few.txt")])
    with pytest.raises(DataError, match=r"0 of 1\d held-out rows have the roles anchor, .*raise data.held_out_share"):
        setting.watched(STS)


def llm_anchors(rows: Rows) -> set[str]:
    return {row["anchor"] for row in rows if row["negative"] is not None}


def test_fewer_llm_rows_are_a_draw_of_those_to_train_on_and_the_others_stay_sentences(folder: Path) -> None:
    whole, none, few, more = (data(folder, hybrid(folder), llm_rows=count) for count in (None, 0, 6, 12))
    assert [len(llm_anchors(setting.train)) for setting in (none, few, more)] == [0, 6, 12]
    assert [setting.counts.get("llm_rows") for setting in (none, few, more)] == [None, 6, 12]
    assert llm_anchors(few.train) < llm_anchors(more.train) < llm_anchors(whole.train)
    own = [a for a in whole.train.column("anchor") if "stranger" not in a]
    for setting in (none, few, more):
        assert setting.held_out.column("anchor") == whole.held_out.column("anchor"), "what is watched is the same"
        assert list(setting.watched(STS)) == list(whole.watched(STS))
        assert [a for a in setting.train.column("anchor") if "stranger" not in a] == own
        added = [row for row in setting.train if "stranger" in row["anchor"]]
        assert all(row["negative"] is not None for row in added), "what only an LLM row brought is gone with it"
        counts = setting.counts
        assert counts["read"] == counts["used"] + sum(n for key, n in counts.items() if key.startswith("dropped: "))


def test_more_llm_rows_than_there_are_is_told(folder: Path, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        data(folder, hybrid(folder), llm_rows=100)
    assert "data.llm_rows=100, but there are only" in caplog.text


def test_fewer_rows_are_the_same_sentences_of_the_corpus_for_all_settings(folder: Path) -> None:
    plain, sts = (data(folder, rows, train_rows=20) for rows in (Sentences(), hybrid(folder)))
    assert len(plain.train) == len(sts.train) == 20
    own = [anchor for anchor in sts.train.column("anchor") if "stranger" not in anchor]
    assert len(own) == 19
    assert Counter(own) < Counter(plain.train.column("anchor"))
    strangers = [json.dumps(written(f"stranger {k}", "sts")) for k in range(60)]
    (folder / "sts.jsonl").write_text("\n".join(strangers) + "\n")
    mixed = data(folder, hybrid(folder), train_rows=20)
    own = [anchor for anchor in mixed.train.column("anchor") if "stranger" not in anchor]
    assert len(own) == 10
    assert set(own) < set(plain.train.column("anchor"))


def test_what_is_evaluated_is_no_llm_row_to_train_on(folder: Path) -> None:
    before = data(folder, hybrid(folder))
    leak = next(row for row in before.train if row["negative"] is not None)
    (folder / "leak.jsonl").write_text(json.dumps({role: leak[role] for role in STS}) + "\n")
    after = data(folder, hybrid(folder), excluded=[str(folder / "leak.jsonl")])
    assert leak not in list(after.train)
    assert len(after.train) == len(before.train) - 1
    assert after.counts["dropped: pair of a dev or test set"] == 1
    assert list(after.held_out) == list(before.held_out)
    assert f"{folder / 'leak.jsonl'}" in after.digests


def test_what_is_watched_decides_and_so_do_its_files(folder: Path) -> None:
    assert str(folder / "nli.jsonl") in data(folder, Sentences(), watched_in=[str(folder / "nli.jsonl")]).digests


def test_no_source_of_llm_rows_is_told_with_its_key(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.rows\.llm: names no source"):
        data(folder, Hybrid(Sentences(), [], "sts", str(folder)))
    with pytest.raises(DataError, match=r"data\.rows\.llm: .*nowhere\.jsonl"):
        data(folder, Hybrid(Sentences(), [str(folder / "nowhere.jsonl")], "sts", str(folder)))


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
    assert seen["negative"] == sum(row["negative"] is not None for row in setting.train) > 0
    assert setting.sentences == sum(seen.values())


def test_without_llm_rows_their_roles_are_empty(folder: Path) -> None:
    setting = data(folder, hybrid(folder), llm_rows=0, llm_rows_together=4)
    setting.use(STS)
    setting.setup()
    for batch in setting.train_dataloader():
        assert len(batch["roles"]["anchor"]) == len(batch["index"]) == 8 or len(batch["index"]) < 10
        assert len(batch["roles"]["negative"]) == 0
        assert batch["roles"]["negative"].rows.dtype == torch.long


def test_augmented_positives_are_text_made_once(folder: Path) -> None:
    one, other = (data(folder, Sentences(), augmentation=TokenShuffle(), seed=seed) for seed in (0, 1))
    assert one.roles == ("anchor", "positive")
    assert list(one.train) == list(other.train)
    assert list(one.held_out) == list(other.held_out)
    pairs = [(row["anchor"], row["positive"]) for part in (one.train, one.held_out) for row in part]
    assert all(Counter(a.split()) == Counter(b.split()) for a, b in pairs)
    assert any(a != b for a, b in pairs)
    assert one.train.where(0).endswith("corpus.txt:" + str(int(one.train[0]["anchor"].split()[-1]) + 1))


def test_an_augmentation_beside_llm_rows_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.augmentation"):
        data(folder, hybrid(folder), augmentation=TokenShuffle())


def test_two_llm_rows_for_one_anchor_are_told(folder: Path) -> None:
    path = folder / "sts.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[2] + "\n")
    with pytest.raises(DataError, match=r"sts\.jsonl:27: a second LLM row for the anchor of .*sts\.jsonl:3"):
        data(folder, hybrid(folder))


def test_rows_of_another_pattern_are_told(folder: Path) -> None:
    wrong = Hybrid(Sentences(), [str(folder / "nli.jsonl")], "sts", str(folder))
    with pytest.raises(DataError, match=r"nli\.jsonl: no LLM rows of the pattern 'sts'.*intermediate"):
        data(folder, wrong)


def table(**columns: list[str]) -> Rows:
    return Rows.of(columns, files=[SourceFile("x", "/x", "")])


def test_corpora_stand_in_for_llm_rows() -> None:
    split = table(sentence=["a b", "c d", "e f"], simple1=["a", "c", "e"], simple2=["b", "d", "f"])
    rows = as_llm_rows(split, "sts")
    assert rows.names == STS
    for row in rows:
        assert row["positive"] == row["anchor"]
        assert row["intermediate"] == row["anchor"][0]
        assert row["negative"] == ANOTHER_ANCHOR
    triplets = table(
        premise=["p", "q", "p"],
        explicit_entailment=["e", "f", "g"],
        implied_entailment=["m"] * 3,
        contradiction=["c"] * 3,
    )
    rows = as_llm_rows(triplets, "nli")
    assert plain(rows) == [
        {"anchor": "p", "positive": "e", "negative": "c"},
        {"anchor": "q", "positive": "f", "negative": "c"},
    ]
    assert rows.counts == {"read": 3, "dropped: repeated anchor": 1}
    with pytest.raises(DataError, match="pattern 'nli'"):
        as_llm_rows(split, "nli")


def test_a_stand_in_takes_its_negative_from_its_own_side_of_the_hold_out(tmp_path: Path) -> None:
    lines = [f"sentence {k} of two\tsentence {k} . <::::> of two ." for k in range(40)]
    for split in ("tune", "validation", "test"):
        (tmp_path / "text" / "wiki-split").mkdir(parents=True, exist_ok=True)
        (tmp_path / "text" / "wiki-split" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "corpus.txt").write_text("\n".join(f"sentence {k} of two" for k in range(40)) + "\n")
    setting = data(tmp_path, Hybrid(Sentences(), ["wiki_split/train"], "sts", str(tmp_path)))
    for side in (setting.train, setting.held_out):
        anchors, negatives = side.column("anchor"), side.column("negative")
        assert sorted(anchors) == sorted(negatives)
        assert all(a != b for a, b in zip(anchors, negatives, strict=True))


def test_premises_of_triplets_are_the_corpus_of_the_nli_domain(folder: Path) -> None:
    triplets = table(premise=["p", "q", "r"], entailment=["e"] * 3, contradiction=["c"] * 3)
    path = folder / "few.jsonl"
    path.write_text(json.dumps(written("q", "nli")) + "\n")
    built = Hybrid(NLITriplets(), [str(path)], "nli", str(folder))([triplets])
    assert [row["positive"] for row in built] == [None, "positive of q", None]


# How LLM rows are gathered ----------------------------------------------------------------------------------------


def loader(together: int, *, rows: int = 64, every: int = 4, batch_size: int = 8, seed: int = 0) -> BatchLoader:
    gathered = torch.arange(rows) % every == 0
    return BatchLoader(
        rows,
        lambda i: {"index": i},
        batch_size=batch_size,
        drop_last=False,
        seed=seed,
        gathered=gathered,
        together=together,
    )


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
    made = loader(16, rows=16, every=1)
    assert [len(batch["index"]) for batch in made] == [8, 8]


def test_what_waits_is_part_of_the_position() -> None:
    whole = [batch["index"].tolist() for made in [loader(5)] for _ in range(2) for batch in made]
    for stop in range(1, 9):
        first = loader(5)
        steps = iter(first)
        begun = [next(steps)["index"].tolist() for _ in range(stop)]
        state = first.state_dict()
        other = loader(5, seed=0)
        other.load_state_dict(state)
        rest = [batch["index"].tolist() for batch in other]
        if stop < 8:
            rest += [batch["index"].tolist() for batch in other]
        assert begun + rest == whole


# Where the LLM rows come from


def test_where_llm_rows_come_from_goes_with_them_and_decides_nothing(folder: Path, caplog: Any) -> None:
    path = folder / "sts.jsonl"
    plain = data(folder, hybrid(folder))
    assert plain.provenance == {}
    write_provenance(path, {"model": "a-model", "pattern": {"name": "sts"}})
    write_provenance(folder / "nli.jsonl", {"model": "another"})
    known = data(folder, hybrid(folder), watched_in=[str(folder / "nli.jsonl")])
    assert known.provenance.keys() == {str(path)}, "of rows that only say what is watched none is trained on"
    told = known.provenance[str(path)]
    assert (told["model"], told["unchanged"], told["rows"]["count"]) == ("a-model", True, 26)
    assert data(folder, hybrid(folder)).digests == plain.digests
    assert list(known.train) == list(plain.train)
    assert not [record for record in caplog.records if "sha256" in record.getMessage()]
    path.write_text(path.read_text().replace("negative of", "opposite of"))
    edited = data(folder, hybrid(folder))
    caplog.clear()
    assert [edited.provenance[str(path)]["unchanged"] for _ in range(2)] == [False, False]
    assert len(caplog.records) == 1, "told once, and only when somebody asks"
    side_file(path).write_text("{")
    assert data(folder, hybrid(folder)).provenance[str(path)].keys() == {"damaged"}
