"""Every reason to reject a reply, from both sides, and what is left of a reply that is accepted."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lightning_cse.generation.examples import Examples
from lightning_cse.generation.filters import judge
from lightning_cse.generation.pattern import Checks, Role
from lightning_cse.generation.text import cleaned, count_sentences, letters, refuses
from lightning_cse.llm import Reply

SENTENCE = "A dog runs."
SOURCE = "A brown dog is running across the wet grass."
POSITIVE = "A dog with brown fur runs over damp grass."
PAIRS = (
    ("Two girls sing.", "Two young women are singing."),
    ("The bus was late.", "The bus did not come in time."),
)


def rows(table):
    r"""The cells of a table, which ``¦`` separates; ``\n`` is a line break."""
    return [
        cell.strip(" ").replace("\\n", "\n")
        for line in table.strip().splitlines()
        for cell in line.split("¦")
    ]


def judged(
    text,
    *,
    finish="stop",
    source=SOURCE,
    reference=None,
    written=(),
    measured=None,
    masked=None,
    **checks,
):
    role = Role.model_construct(
        name="r",
        fields=("Sentence 1", "Sentence 2"),
        masked=masked,
        example_pairs=Examples(PAIRS, PAIRS),
        checks=Checks(**checks),
    )
    return judge(
        Reply(text, finish),
        role,
        {"source": source, **dict(written)},
        reference or source,
        lambda a, b: measured[a, b],
    )


SORRY = "I'm sorry, but I can't assist you with this."
LESS = {"less_detail_than": "positive", "written": {"positive": POSITIVE}}
QUESTION = {"source": "What is the capital of France?", "shortest": 0.3}


REASONS = [
    (None, POSITIVE, {}),
    (None, "犬が走っている。", {"finish": "length"}),
    ("refused", SORRY, {}),
    ("refused", POSITIVE, {"finish": "content_filter"}),
    (None, "I apologize, but I can't help you with that.", {"source": SORRY}),
    ("cut off", "A dog with brown fur runs over the", {"finish": "length"}),
    ("cut off", '{"sentence": "A dog with brown fur runs', {"finish": "length"}),
    ("empty", "Sentence 2:", {}),
    ("empty", "Here is the sentence:", {}),
    ("empty", '{"sentence": ""}', {}),
    ("mask left", "A <MASK> runs.", {"masked": 0.5}),
    (None, f'Here is the JSON:\n{{"sentence": "{POSITIVE}"}}', {}),
    ("no sentence", "{broken", {}),
    ("no sentence", '{"sentence": "A dog with brown fur runs', {}),
    ("no sentence", f'{{"sentence": {{"text": "{POSITIVE}"}}}}', {}),
    ("cut off", f'{{"sentence": "{POSITIVE}', {"finish": "length"}),
    ("echo of the prompt", f"Sentence 4: {POSITIVE}", {}),
    (None, "The note says Sentence 1: no dogs.", {"source": "Sentence 1: dogs are not allowed."}),
    (None, PAIRS[0][1], {"source": PAIRS[0][0]}),  # the second sentence of an example answers it
    ("echo of the source", SOURCE.upper(), {}),
    ("echo of the source", POSITIVE, {"reference": POSITIVE}),
    (None, "There are 3 dogs.", {"source": "There are 2 dogs."}),
    ("several sentences", f"{POSITIVE}\n\nAnother dog does so, too.", {}),
    ("several sentences", "A dog runs. It is brown. It is wet.", {"most_sentences": 2}),
    (None, "A dog runs. It is brown. It is wet.", {"most_sentences": None}),
    (None, "A dog runs. It is brown.", {"reference": "A brown dog is here. It runs fast."}),
    ("too short", "Paris.", QUESTION),
    (None, "Which city rules France?", QUESTION),
    ("more detail", "A dog with soft brown fur runs over damp grass.", LESS),  # ten words for nine
    ("more detail", "A cat with black fur sleeps under dry leaves.", LESS),  # as many
    (None, "A cat sleeps under dry leaves.", LESS),
    ("more detail", f"{POSITIVE[:-1]} today.", {"less_detail_than": "source"}),
    ("equal to another role", f"{POSITIVE[:-1]}!", LESS),
]


@pytest.mark.parametrize(("reason", "text", "arguments"), REASONS)
def test_reasons(reason, text, arguments):
    assert judged(text, **arguments)[1] == reason


@pytest.mark.parametrize(
    ("words", "of", "arguments", "reason"),
    [
        (16, 1, {}, None),
        (17, 1, {}, "too long"),
        (25, 10, {}, None),
        (26, 10, {}, "too long"),
        (2, 10, {"shortest": 0.3}, "too short"),
        (1, 5, {"shortest": 0.3}, None),
    ],
)
def test_lengths(words, of, arguments, reason):
    text = " ".join(f"w{n}" for n in range(words))
    reference = " ".join(f"r{n}" for n in range(of))
    assert judged(text, reference=reference, **arguments)[1] == reason


def test_accepted_sentence_is_one_line():
    structured = json.dumps({"sentence": f'"{POSITIVE}"'})
    replies = [
        structured,
        f"```json\n{structured}\n```",
        POSITIVE.replace(" ", " \t "),
        f'Sure!\n\n**Sentence 2:** "{POSITIVE}"',
    ]

    assert [judged(reply) for reply in replies] == [(POSITIVE, None)] * 4


REFUSALS = """
I'm sorry, but I can't help with that. ¦ I’m sorry, but I can’t assist with that request. ¦ Sorry, I can't do that.
I cannot help you with this. ¦ I can't comply with that. ¦ I cannot fulfill your request. ¦ Please provide a sentence.
I cannot generate a hypothesis for this premise. ¦ I'm unable to provide an answer to this prompt.
I am not able to rewrite this sentence. ¦ I won't write a sentence like that one. ¦ > I cannot create such a sentence.
As an AI language model, I don't have opinions. ¦ Unfortunately, I am unable to help with violent descriptions.
I'm just an AI and I can't judge people. ¦ My apologies, but I can't rephrase this. ¦ I'm sorry, but I can't help.
As a large language model, I cannot do so. ¦ Could you please provide the sentence to rewrite?
"""
NO_REFUSALS = """
I can't believe it's over. ¦ I can't help falling in love. ¦ I'm sorry for your loss. ¦ I do not eat meat. ¦
I am sorry, but I can't come tonight. ¦ Unfortunately, I can't help laughing. ¦ I am unable to sleep.
She said she could not assist with the request. ¦ "I can't help with that," she told the guest.
As an AI engineer, I cannot imagine another job. ¦ As a child, I was not able to swim. ¦ No, the shop is not open.
I cannot provide for my family. ¦ I must decline the invitation. ¦ We can't answer the phone on Sundays.
Please provide a receipt. ¦ Could you provide information about the dog? ¦ Sorry seems to be the hardest word.
I can't help with the dishes. ¦ Unfortunately, I can't help it. ¦ I can't answer my mother.
"""


@pytest.mark.parametrize(("table", "refused"), [(REFUSALS, True), (NO_REFUSALS, False)])
def test_refusals(table, refused):
    assert [
        text
        for text in rows(table)
        if not refuses(text) == refuses(f" \n{text.upper()}\n") == refused
    ] == []


TAKEN_OFF = r"""
"A dog runs." ¦ „A dog runs.“ ¦ 「A dog runs.」 ¦ ```\nA dog runs.\n``` ¦ **A dog runs.** ¦ **"A dog runs."**
- A dog runs. ¦ 1. A dog runs. ¦ sentence  2 : A dog runs. ¦ **Sentence 2:** A dog runs. ¦ **Sentence 2: A dog runs.**
"A dog runs". ¦ "Sentence 2: A dog runs." ¦ **Answer:** A dog runs. ¦ assistant: Sure! A dog runs.
### Rewritten sentence\nA dog runs. ¦ Here is what you asked for:\nA dog runs.
Rewritten: A dog runs. ¦ Here's the rewritten sentence: A dog runs.
Sure! Here is a sentence that means the same:\n\n"A dog runs."
Sure!\nA dog runs. ¦ Here it is:\n\nA dog runs. ¦ Hier ist der Satz:\nA dog runs.
以下是改写后的句子：\nA dog runs.
A dog runs.\n\n(Note: I kept the details.) ¦ A dog runs. *Note: it is the same.* ¦ A dog runs.\n\nI hope this helps!
A dog runs.\n\n**Explanation:** it is the same. ¦ "A dog runs."\n\nThis sentence preserves the meaning. It is short.
Sure! Here's a rewrite:\n\n1. **A dog runs.**\n\nLet me know if you need more.
"""
STAYS = r"""
"Go!" he said. "Now!" ¦ "Go!" and "Stay!" ¦ The answer is: go. ¦ Here you are. ¦ Here is the dog. ¦ Sure, a dog runs.
Here is a dog: it runs. ¦ Yes: a dog runs. ¦ Read sentence 2: it is good. ¦ It's the dogs' bowl. ¦ -5 degrees it was.
A dog runs.\nA cat sleeps. ¦ Note: a dog runs. ¦ A dog (note its fur) runs. ¦ Contradiction is a relation.
1.5 dogs run. ¦ 1999. A dog runs. ¦ Rewritten by her sister, the play ran for years.
"""


def test_cleaning():
    for reply in (*rows(TAKEN_OFF), f"\ufeff{SENTENCE}\x00", f"{SENTENCE}\ud83d"):
        assert cleaned(reply, "Sentence 2") == SENTENCE, reply

    for text in rows(STAYS):
        assert cleaned(text, "Sentence 2") == text

    # A number or label that the reference has, too.
    for text, reference in (("1. A dog.", "1. A brown dog."), ("Answer: go.", "Answer: stay.")):
        assert cleaned(text, "Sentence 2", reference) == text


@pytest.mark.timeout(60)  # a pattern that backtracks takes hours
@pytest.mark.parametrize("piece", ["a", "- ", "((", "Answer: ", "A dog. ", "{", "a" + " " * 50])
def test_long_reply_is_judged_in_linear_time(piece):
    assert judged(piece * 3_000)


ONE = """
A dog runs ¦ Really?! ¦ Dr. Ames met Mr. and Mrs. Lee. ¦ J. K. Rowling met George W. Bush. ¦ 1. Buy milk.
The U.S. Army left at 5 p.m. on Monday. ¦ Bread, milk, etc. were sold. ¦ It costs $3.50, or 1.234,56 euros.
Wait... what did you say? ¦ "Why?" he asked. ¦ Dr . Ames ran , and the dog ran . ¦ 「はい。」と言った。 ¦ वह दौड़ता है।
"""
TWO = r"""
A dog runs. A cat sleeps. ¦ A dog runs\n\nA cat sleeps ¦ 1. Buy milk. 2. Buy bread. ¦ Buy milk. 2 people came.
He left... Then she came. ¦ He said "Stop." Then he left. ¦ "It is late. We must go." ¦ A dog runs. (It is brown.)
彼は走った。猫は寝た。
"""


def test_sentences_are_counted():
    expected = (
        dict.fromkeys(rows(ONE), 1) | dict.fromkeys(rows(TWO), 2) | {"": 0, '"..."': 0, "🐶": 0}
    )
    assert {text: count_sentences(text) for text in expected} == expected


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ("A dog runs.", "a DOG, runs", True),
        ("café", "cafe\u0301", True),
        ("Straße", "STRASSE", True),
        ("Ｄog №１", "dog no1", True),
        ("2 dogs", "3 dogs", False),
        ("cafe", "café", False),
        ("की", "का", False),
    ],
)
def test_letters_decide_equality(first, second, equal):
    assert (letters(first) == letters(second)) == equal


PIECES = """
\n ¦ " ¦ “ ¦ ' ¦ ` ¦ ( ¦ ) ¦ : ¦ { ¦ } ¦ A dog ¦ runs ¦ Dr. ¦ 3.5 ¦ ... ¦ ! ¦ ** ¦ - ¦ 1. ¦ 犬。 ¦ Sentence 2: ¦ Sure!
Here is the ¦ sentence: ¦ <think> ¦ </think> ¦ (Note: ¦ Let me know if ¦ Return the new sentence and nothing else; all
"""
ANY = st.sampled_from([*rows(PIECES), "\u0301", "\ud800", "\u2028", SORRY, SOURCE, POSITIVE])


@example(text="{ \ud800", finish="stop")
@example(text='{"sentence": "\\ud800 A dog runs."}', finish="stop")
@given(st.lists(ANY, max_size=15).map(" ".join), st.sampled_from(["stop", "length"]))
def test_accepted_sentence_is_accepted_again(text, finish):
    sentence, reason = judged(text, finish=finish, **LESS)
    sentence.encode()

    assert reason or (letters(sentence) and judged(sentence, **LESS) == (sentence, None))


@pytest.mark.parametrize(
    ("bounds", "cosine", "reason"),
    [
        ({"above": 0.6}, 0.61, None),
        ({"above": 0.6}, 0.6, "too far in meaning"),
        ({"below": 0.6}, 0.59, None),
        ({"below": 0.6}, 0.6, "too close in meaning"),
        ({"above": 0.2, "below": 0.6}, 0.1, "too far in meaning"),
        ({"above": 0.2, "below": 0.6}, 0.7, "too close in meaning"),
    ],
)
def test_bounds_of_the_cosine_with_the_source(bounds, cosine, reason):
    measured = {(SOURCE, SENTENCE): cosine}
    arguments = {"reference": POSITIVE, "measured": measured, "cosine": bounds}
    assert judged(f'"{SENTENCE}"', **arguments) == (SENTENCE, reason)
