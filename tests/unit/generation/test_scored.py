"""Patterns of pairs with scores: Dino's, CLAIF's and CLHAIF's rows, and the replies with scores."""

import json
import math
import re
from collections import Counter

import pytest
from llm_server import prompt

from lightning_cse.data import read_files
from lightning_cse.data.rows import names_of
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.generation.filters import read_score
from lightning_cse.generation.summary import summarise
from lightning_cse.generation.text import MASK, mask_words
from lightning_cse.llm import LLMError, Reply

SENTENCE = "one two three four five six seven eight nine ten"
DINO = {"mean the same thing": 1.0, "somewhat similar": 0.5, "completely different topics": 0.0}


def degree(body):
    """The score of the pairs that a request of Dino is for."""
    system = body["messages"][0]["content"]
    (score,) = [score for words, score in DINO.items() if words in system]
    return score


def second(body):
    """A sentence 2 that differs by the degree and by the user's sentence."""
    first = re.search(r'Sentence 1: "(.*)"', prompt(body))[1]
    return f'Sentence 2: "Of degree {degree(body)}: {first[:30].rstrip(".")}."'


def is_score(body):
    return "similarity score" in body["messages"][0]["content"]


def filled(body):
    """Filled masks, a paraphrase, or a score, by what the prompt says."""
    if is_score(body):
        return "0.75"

    words = prompt(body).replace('Sentence 1: "', "Again, ").rstrip('"')
    return f"{words.replace(MASK, 'thing').rstrip('.')} now."


def test_dino_writes_a_pair_for_each_degree(serve, generation, lines):
    server = serve(second)
    writing = generation(server, "+pattern=dino", data="stsb_pairs")
    provenance = writing.write()
    rows = lines(writing.rows)
    scores = {"positive": 1.0, "intermediate": 0.5, "negative": 0.0}

    assert [(row["sentence1"], row["score"]) for row in rows] == [
        (sentence, score) for sentence in writing.sentences[:6] for score in scores.values()
    ]
    assert all(row["sentence2"].startswith(f"Of degree {row['score']}") for row in rows)
    assert provenance["rows"]["count"] == len(server.calls) == 18
    assert provenance["pattern"]["scores"] == scores
    assert generation(server, "+pattern=dino", data="stsb_pairs").write() == provenance

    table = read_files(str(writing.rows), key="data.train")
    assert names_of(table) == ["sentence1", "sentence2", "score"]

    more = generation(server, "+pattern=dino", "n=8", data="stsb_pairs")
    more.write()
    assert len(server.calls) == 24
    assert lines(more.rows)[:18] == rows


def test_pair_without_an_accepted_reply_is_left_out(serve, generation, lines):
    first, bad, *good = generation(None, "+pattern=dino", data="stsb_pairs").sentences[:7]

    def refuses(body):
        refused = first in prompt(body) and degree(body) == 0.5
        return "" if refused or bad in prompt(body) else second(body)

    writing = generation(serve(refuses), "+pattern=dino", "samples=2", data="stsb_pairs")
    provenance = writing.write()
    pairs = Counter(row["sentence1"] for row in lines(writing.rows))
    (given_up,) = lines(writing.given_up)

    assert pairs == {first: 2, **dict.fromkeys(good, 3)}
    assert (given_up["anchor"], len(given_up["rejected"])) == (bad, 6)
    assert provenance["acceptance"]["sources"] == {"complete": 6, "given_up": 1}


def test_claif_fills_masks_then_asks_for_scores_and_resumes(serve, generation, lines):
    server = serve(filled)
    server.plan = lambda body, _: "error" if sum(server.answered.values()) >= 13 else None
    overrides = ("+pattern=claif", "n=3", "samples=1", "llm.retries=0")
    first = generation(server, *overrides, data="stsb_pairs")

    with pytest.raises(LLMError, match="of 3 sentences have no reply"):
        first.write()

    assert not first.rows.exists()

    server.plan = None
    writing = generation(server, *overrides, data="stsb_pairs")
    provenance = writing.write()
    rows = lines(writing.rows)
    bodies = [call.body for call in server.calls if not call.fault]

    assert max(Counter(map(prompt, bodies)).values()) == 1
    assert writing.run.path == first.run.path
    assert {row["score"] for row in rows} == {0.75}
    assert {row["role"] for row in rows} >= {"masked_0", "masked_40", "masked_80"}
    assert provenance["acceptance"]["roles"]["masked_0 score"]["accepted"] == 3
    pairs = {f"Sentence 1: {row['sentence1']}\nSentence 2: {row['sentence2']}" for row in rows}
    assert pairs == {prompt(body) for body in bodies if is_score(body)}
    for body in bodies:
        (key,) = body["response_format"]["json_schema"]["schema"]["properties"]
        assert key == ("score" if is_score(body) else "sentence")


def test_clhaif_scores_the_given_pairs(serve, generation, lines):
    server = serve(lambda body: json.dumps({"score": 0.25}))
    writing = generation(server, "+pattern=clhaif", data="nli")
    provenance = writing.write()
    rows = lines(writing.rows)

    assert [row["anchor"] for row in rows] == writing.sentences[:6]
    assert all(writing.data_roles[row["anchor"]]["positive"] == row["positive"] for row in rows)
    assert {(*row, row["score"]) for row in rows} == {
        ("anchor", "positive", "negative", "score", 0.25)
    }
    assert len(server.calls) == 6

    summary = summarise(writing.pattern, writing.rows, None, most=10, seed=0)
    assert summary.metrics(provenance)["generate/positive/accepted"] == 1.0


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("0.8", 0.8),
        ("1", 1.0),
        (" .5 ", 0.5),
        ("0.8.", 0.8),
        ('{"score": 0.35}', 0.35),
        ('```json\n{"score": 1.0}\n```', 1.0),
        ("**Score:** 0.6 because both are about dogs", 0.6),
        ("The similarity score for these two sentences is 0.9, since they agree.", 0.9),
        ("a similarity score of 0.25", 0.25),
        ("<think>Say 0.3?</think>0.7", 0.7),
        ('Here it is: {"score": "0.45"}', 0.45),
        ('{"score": 0.3', "no score"),
        ('{"score": [0.3]}', "no score"),
        ('{"score": 1e-05}', "no score"),
        ("<think>It may be 0.3", "no score"),
        ("1.5", "score not from 0 to 1"),
        ("85%", "no score"),
        ("4/5", "no score"),
        ("1 out of 5", "no score"),
        ("0,8", "no score"),
        ("-0.5", "no score"),
        ("0.3-0.4", "no score"),
        ("They are 0.4 alike", "no score"),
        ("", "no score"),
        ("I'm sorry, but I can't help with that.", "refused"),
    ],
)
def test_scores_are_read_from_replies(reply, expected):
    score, reason = read_score(Reply(reply, "stop"))
    assert (reason or score) == expected
    assert read_score(Reply(reply, "content_filter"))[1] == "refused"


@pytest.mark.parametrize("share", [0.1, 0.3, 0.7, 1.0])
def test_share_of_the_words_is_masked(share):
    words = SENTENCE.split()
    draws = [mask_words(SENTENCE, share, seed) for seed in range(40)]
    merged = [text for text in draws if f"{MASK} {MASK}" not in text]

    assert max(text.split().count(MASK) for text in draws) == math.ceil(share * len(words))
    for text in draws:
        left = [word for word in text.split() if word != MASK]
        assert left == [word for word in words if word in left]

    assert len({*draws}) > 5 or share == 1.0
    assert len(merged) >= 8
    assert mask_words(SENTENCE, share, 3) == draws[3]


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["pattern.scores.positive=2"], "pattern.scores.positive"),
        (["pattern.scores.positive=null"], "'asked'"),
        (["pattern.scores.positive=asked"], "scoring: says how the model is asked"),
        (["+pattern.scores.other=1"], "scores: 'other' must be one of"),
        (["+pattern.given=[same]"], "rows of given sentences have one score"),
        (["pattern.roles.0.message=Sentence"], "must have the placeholder {sentence}"),
        (["pattern.roles.0.message='{sentence} {other}'"], "unknown placeholder 'other'"),
        (["+pattern.roles.0.masked=0"], "pattern.roles.0.masked: Input should be greater than 0"),
        (["pattern.roles=[]", "pattern.scores=null"], "pattern.scores"),
        (["+pattern=clhaif", "data=wiki"], "no column 'positive'"),
    ],
)
def test_faults(generation, overrides, fault):
    with pytest.raises((ConfigError, DataError), match=re.escape(fault)):
        generation(None, "+pattern=dino", "data=stsb_pairs", *overrides)
