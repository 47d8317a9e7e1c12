"""The few-shot prompt, and what is read out of a reply."""

from collections import Counter

import pytest

from lightning_cse.baselines import FewShot
from lightning_cse.baselines.few_shot import LABELS, read_label
from lightning_cse.data import read_corpus
from lightning_cse.data.declarations import sample_dir
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation.inli import HYPOTHESES
from lightning_cse.llm import Failure, Reply

DATA = str(sample_dir())


def reply(text, finish="stop"):
    return Reply(text, finish, "m", 10, 2)


class Backwards:
    """A client whose replies come in the opposite order of the requests."""

    def __init__(self, answer=None):
        self.answer = answer or (lambda _: reply("neutral"))
        self.asked = []

    def ask(self, requests):
        self.asked = list(requests)
        for number, request in reversed(list(enumerate(self.asked))):
            yield number, self.answer(request.messages[-1][1])


def few_shot(client=None, **options):
    return FewShot((client or Backwards()).ask, **{"data_dir": DATA, **options})  # type: ignore[arg-type]


# The prompt


def test_examples_are_balanced_true_and_of_distinct_premises():
    examples = few_shot().examples
    assert Counter(type_ for _, _, type_ in examples) == dict.fromkeys(LABELS, 2)
    assert len({premise for premise, _, _ in examples}) == 8
    train = read_corpus("inli", "train", DATA)
    rows = {row["premise"]: row for row in train}
    assert all(
        hypothesis == rows[premise][HYPOTHESES[type_][0]] for premise, hypothesis, type_ in examples
    )
    assert [type_ for _, _, type_ in examples] != [type_ for type_ in LABELS for _ in range(2)], (
        "labels come mixed"
    )
    counts = Counter(type_ for _, _, type_ in few_shot(shots=6).examples)
    assert sorted(counts.values()) == [1, 1, 2, 2]
    assert few_shot().examples == examples != few_shot(seed=1).examples
    assert few_shot(seed=1).prompt_digest != few_shot().prompt_digest


def test_more_examples_than_premises_are_refused():
    with pytest.raises(ConfigError, match=r"few_shot\.shots: INLI has"):
        _ = few_shot(shots=10**5).examples


def test_a_request_is_the_task_then_the_examples_then_the_pair():
    client = Backwards()
    model = few_shot(client, shots=4, parameters={"max_tokens": 9, "reasoning_effort": "low"})
    model.judge(["It rained.", "It rained."], ["Wet!", "Dry!"])
    for request, hypothesis in zip(client.asked, ("Wet!", "Dry!"), strict=True):
        assert [role for role, _ in request.messages] == [
            "system",
            *["user", "assistant"] * 4,
            "user",
        ]
        assert request.messages[-1][1] == f"Premise: It rained.\nHypothesis: {hypothesis}"
        assert request.parameters == {"max_tokens": 9, "reasoning_effort": "low"}

    system = client.asked[0].messages[0][1]
    assert all(label in system for label in LABELS.values())


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("explicit entailment", "explicit"),
        ("Implied Entailment.", "implied"),
        ("**Label:** `implied entailment`", "implied"),
        ('The label is "Contradiction": it cannot be both. Contradiction!', "contradiction"),
        ("I'm sorry, but I would call it neutral.", "neutral"),
        ("", "unparsable"),
        ("entailment", "unparsable"),
        ("neutral or contradiction", "unparsable"),
        ("<think>Is it neutral? It is said.</think>\nexplicit entailment", "explicit"),
        ("<think>It must be neutral", "unparsable"),
        ('<think>Neutral?</think>{"label": "implied entailment"}', "implied"),
        ('The label: {"label": "contradiction"}', "contradiction"),
        ('{"label": "neutr', "unparsable"),
        ('{"label": "neutral or', "unparsable"),
        ('{"label": ["neutral"]}', "unparsable"),
        ("[" * 100_000, "unparsable"),
        ("not neutral", "unparsable"),
        ("It cannot be a contradiction.", "unparsable"),
        ("There is no explicit or implied entailment", "unparsable"),
        ("Neutral is wrong", "unparsable"),
        ("It is not a contradiction, it is neutral.", "neutral"),
        ("neutral rather than contradiction", "neutral"),
        ("Neutral. Not enough is said to tell.", "neutral"),
        ("I'm sorry, I can't help with that.", "refused"),
        (reply("neutral", "refusal"), "refused"),
        (reply("neutral", "content_filter"), "refused"),
        (reply("**Neutral**, since the pre", "length"), "neutral"),
        (reply("Let me see whether this is neutral", "length"), "unparsable"),
    ],
)
def test_one_label_is_read_and_nothing_is_guessed(text, answer):
    assert read_label(reply(text) if isinstance(text, str) else text) == answer


def test_answers_stand_in_the_order_of_the_pairs():
    replies = {"a": reply("implied entailment"), "c": reply("hm"), "d": reply("contradiction")}
    client = Backwards(lambda pair: replies.get(pair[-1]) or Failure("long", final=True))
    answers = few_shot(client).judge(["p"] * 4, list("abcd"))
    assert answers == ["implied", "failed", "unparsable", "contradiction"]


def test_pairs_of_one_premise_are_asked_one_after_another():
    client = Backwards()
    few_shot(client).judge(list("pqpqpr"), list("abcdef"))
    assert [request.messages[-1][1][-1] for request in client.asked] == list("acebdf")
