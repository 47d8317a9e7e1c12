"""Every reason to reject a reply, from both sides, and what is left of a reply that is accepted."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.generation.filters import Checks, cleaned, count_sentences, judge, letters, refuses
from lightning_cse.generation.pattern import Examples, Role
from lightning_cse.llm import Reply

SENTENCE = "A dog runs."
SOURCE = "A brown dog is running across the wet grass."
POSITIVE = "A dog with brown fur runs over damp grass."
PAIRS = (
    ("Two girls sing.", "Two young women are singing."),
    ("The bus was late again.", "Once more, the bus did not come in time."),
)
SYSTEM = (
    "Write a sentence that means the same as the one the user gives you, in other words.\n\n"
    + "\n\n".join(f"Sentence 1: {first}\nSentence 2: {second}" for first, second in PAIRS)
    + "\n\nReturn the new sentence and nothing else; all information has to be preserved in it."
)


def judged(text: str, *, finish: str = "stop", source: str = SOURCE, **given: Any) -> tuple[str, str | None]:
    reference, written = given.pop("reference", source), given.pop("written", {})
    role = Role("r", "source", SYSTEM, ("Sentence 1", "Sentence 2"), Examples(PAIRS, PAIRS), Checks(**given))
    return judge(Reply(text, finish), role, source, reference, written)


SORRY = "I'm sorry, but I can't assist you with this."
GERMAN = {"refused_words": ["Es tut mir leid, aber", "Désolé", "申し訳"]}
LESS: Any = {"less_detail_than": "positive", "written": {"positive": POSITIVE}}


@pytest.mark.parametrize(
    ("reason", "text", "given"),
    [
        (None, POSITIVE, {}),
        (None, "A dog with brown fur runs over the", {}),
        (None, "犬が走っている。", {}),
        (None, "3", {}),
        ("refused", "I'm sorry, but I can't help with that.", {}),
        ("refused", "Sentence 2: Sorry, no.", {}),
        ("refused", "Could you please provide the sentence you'd like me to rewrite?", {}),
        ("refused", POSITIVE, {"finish": "content_filter"}),
        ("refused", "", {"finish": "refusal"}),
        ("refused", "ES TUT  MIR LEID, ABER DAS GEHT NICHT.", GERMAN),
        ("refused", '"De\u0301sole\u0301, impossible."', GERMAN),
        ("refused", "申し訳ありません。", GERMAN),
        (None, "Le chien est désolé.", GERMAN),
        (None, "Sorry seems to be the hardest word.", {}),
        (None, "I apologize, but I can't help you with that.", {"source": SORRY}),
        (None, "I apologize, but I can't help you with that.", {"reference": SORRY}),
        ("cut off", "A dog with brown fur runs over the", {"finish": "length"}),
        ("cut off", "<think>The user wants a dog. So", {"finish": "length"}),
        ("cut off", '{"sentence": "A dog with brown fur runs', {"finish": "length"}),
        (None, '"A dog with brown fur runs."', {"finish": "length"}),
        (None, "犬が走っている。", {"finish": "length"}),
        *[("empty", text, {}) for text in ("", " \n", '"..."', "“?!”", "**", "Sentence 2:", "Here is the sentence:")],
        *[
            ("empty", text, {})
            for text in ("N/A", "**No**", "SENTENCE 12", "No change", '{"sentence": null}', "{broken")
        ],
        (None, "No dog.", {}),
        (None, "No.", {"source": "Never!"}),
        (None, "Sentence 2 is short.", {}),
        ("echo of the prompt", f"Sentence 1: {SOURCE}\nSentence 2: {POSITIVE}", {}),
        ("echo of the prompt", f"{POSITIVE} Sentence 2: So it is.", {}),
        ("echo of the prompt", f"Sentence 4: {POSITIVE}", {}),
        ("echo of the prompt", "Two girls sing!", {}),
        ("echo of the prompt", "two young women are singing", {}),
        ("echo of the prompt", "RETURN THE NEW SENTENCE AND NOTHING ELSE, ALL OF IT", {}),
        (None, "Return the new sentence and nothing.", {}),  # six words in a row
        (None, "He read sentence 2: it was long.", {}),
        (None, "The note says Sentence 1: no dogs.", {"source": "A note has Sentence 1: dogs are not allowed."}),
        (None, PAIRS[0][1], {"source": PAIRS[0][0]}),  # the second sentence of an example answers the first
        ("echo of the source", SOURCE.upper(), {}),
        ("echo of the source", f"“{SOURCE[:-1]}”", {"reference": POSITIVE}),
        ("echo of the source", POSITIVE, {"reference": POSITIVE}),
        (None, "There are 3 dogs.", {"source": "There are 2 dogs."}),
        ("several sentences", "A dog runs. It is brown.", {}),
        ("several sentences", f"{POSITIVE}\n\nAnother dog does so, too.", {}),
        ("several sentences", "1. A dog runs.\n2. A dog is running.", {}),
        ("several sentences", "A dog runs. It is brown. It is wet.", {"most_sentences": 2}),
        (None, "A dog runs. It is brown.", {"most_sentences": 2}),
        (None, "A dog runs. It is brown. It is wet.", {"most_sentences": None}),
        (None, "A dog runs. It is brown.", {"reference": "A brown dog is here. It runs fast."}),
        (None, f"{POSITIVE}\n\nThis sentence preserves the meaning. So it is.", {}),
        ("too short", "Paris.", {"source": "What is the capital of France?", "shortest": 0.3}),
        (None, "Which city rules France?", {"source": "What is the capital of France?", "shortest": 0.3}),
        ("more detail", "A dog with soft brown fur runs over damp grass.", LESS),  # ten words for nine
        ("more detail", "A brown dog is running across the old grass.", LESS),  # as many, and nearer to the source
        ("more detail", "A dog with brown fur jumps over damp grass.", LESS),  # as many, and as near
        (None, "A cat with black fur sleeps under dry leaves.", LESS),  # as many, and farther
        (None, "A dog is running.", LESS),
        ("more detail", f"{POSITIVE[:-1]} today.", {"less_detail_than": "source"}),
        ("equal to another role", f"{POSITIVE[:-1]}!", LESS),
        ("equal to another role", "a dog RUNS", {"written": {"positive": POSITIVE, "intermediate": SENTENCE}}),
    ],
)
def test_reasons(reason: str | None, text: str, given: dict[str, Any]) -> None:
    assert judged(text, **given)[1] == reason


@pytest.mark.parametrize(
    ("words", "of", "given", "reason"),
    [
        (16, 1, {}, None),
        (17, 1, {}, "too long"),
        (25, 10, {}, None),
        (26, 10, {}, "too long"),
        (26, 10, {"longest": None}, None),
        (11, 10, {"longest": 1.0, "always_allowed": 0}, "too long"),
        (12, 10, {"longest": 1.0, "always_allowed": 12}, None),
        (2, 10, {"shortest": 0.3}, "too short"),
        (3, 10, {"shortest": 0.3}, None),
        (1, 6, {"shortest": 0.3}, "too short"),
        (1, 5, {"shortest": 0.3}, None),
        (1, 99, {}, None),
    ],
)
def test_lengths(words: int, of: int, given: dict[str, Any], reason: str | None) -> None:
    text, reference = (" ".join(f"{sign}{n}" for n in range(count)) for sign, count in (("w", words), ("r", of)))
    assert judged(text, reference=reference, **given)[1] == reason


@pytest.mark.parametrize(
    "text",
    [
        f'Sure! Here is the sentence:\n\n**Sentence 2:** "{POSITIVE}"',
        POSITIVE.replace(" ", " \t "),
        json.dumps({"sentence": POSITIVE}),
        f"```json\n{json.dumps({'sentence': POSITIVE})}\n```",
        json.dumps({"sentence": f'"{POSITIVE}"'}),
    ],
)
def test_an_accepted_sentence_stands_alone_and_on_one_line(text: str) -> None:
    assert judged(text) == (POSITIVE, None)


REFUSALS = """
I'm sorry, but I can't help with that.
I’m sorry, but I can’t assist with that request.
Sorry, I can't do that.
Sorry, but no.
I'm sorry, I can't.
I cannot help you with this.
I can't comply with that.
I cannot fulfill your request.
I cannot generate a hypothesis for this premise.
I'm unable to provide an answer to this prompt.
I am not able to rewrite this sentence.
I won't write a sentence like that one.
As an AI language model, I don't have opinions.
I'm just an AI and I can't judge people.
Unfortunately, I am unable to help with violent descriptions.
I apologize for any inconvenience. I cannot continue with this.
My apologies, but I can't rephrase this.
**I'm sorry, but I can't help with that.**
> I cannot create such a sentence.
I respectfully decline to write that sentence.
I'd rather not answer that question.
Thank you for your message, but I cannot answer this question.
Please provide a sentence.
Please share the text you want me to paraphrase.
Sure! I'd be happy to help. Please provide the sentence you want me to rewrite.
""".strip().splitlines()
NO_REFUSALS = """
I can't believe it's over.
I can't help falling in love.
I'm sorry for your loss.
I am sorry, but I can't come tonight.
Unfortunately, I can't help laughing.
She said she could not assist with the request.
"I can't help with that," she told the guest.
As an AI engineer, I cannot imagine another job.
As a child, I was not able to swim.
I do not eat meat.
I cannot provide for my family.
I must decline the invitation.
No, the shop is not open.
We can't answer the phone on Sundays.
I am unable to sleep.
Please provide a receipt.
Could you provide information about the dog?
""".strip().splitlines()


@pytest.mark.parametrize(("text", "refused"), [(t, True) for t in REFUSALS] + [(t, False) for t in NO_REFUSALS])
def test_refusals(text: str, refused: bool) -> None:
    assert refuses(text) == refuses(f" \n{text.upper()}\n") == refused


@pytest.mark.parametrize(
    "reply",
    [
        *(f" \n{SENTENCE}\t", f'"{SENTENCE}"', f"„{SENTENCE}“", f"「{SENTENCE}」", f"```\n{SENTENCE}\n```"),
        *(
            f"**{SENTENCE}**",
            f"_{SENTENCE}_",
            f'**"{SENTENCE}"**',
            f"- {SENTENCE}",
            f"1. {SENTENCE}",
            f'1) "{SENTENCE}"',
        ),
        *(f"sentence  2 : {SENTENCE}", f"**Sentence 2:** {SENTENCE}", f"**Sentence 2: {SENTENCE}**"),
        *(
            f'"Sentence 2: {SENTENCE}"',
            f"**Answer:** {SENTENCE}",
            f"Rewritten: {SENTENCE}",
            f"assistant: Sure! {SENTENCE}",
        ),
        *(f"### Rewritten sentence\n{SENTENCE}", f'The new sentence is: "{SENTENCE}"', '"A dog runs".'),
        f"Here is what you asked for:\n{SENTENCE}",
        f"Here's the rewritten sentence: {SENTENCE}",
        f'Sure! Here is a sentence that means the same:\n\n"{SENTENCE}"',
        *(f"Sure!\n{SENTENCE}", f"Here you go: {SENTENCE}", f"Here it is:\n\n{SENTENCE}"),
        *(f"Hier ist der Satz:\n{SENTENCE}", f"以下是改写后的句子：\n{SENTENCE}"),
        *(
            f"{SENTENCE}<|im_end|>",
            f"<think>\nThey want a dog.\n</think>\n\n{SENTENCE}",
            f"So a dog.</think>{SENTENCE}",
        ),
        *(f"\ufeff{SENTENCE}\x00", f"{SENTENCE}\ud83d"),
        f"{SENTENCE}\n\n(Note: I kept the details.)",
        f"{SENTENCE} *Note: it is the same.*",
        f"{SENTENCE}\n\n**Explanation:** it is the same.",
        f"{SENTENCE}\n\nI hope this helps! Let me know.",
        f'"{SENTENCE}"\n\nThis sentence preserves the meaning. It has three words.',
        f"Sure! Here's a rewrite:\n\n1. **{SENTENCE}**\n\nLet me know if you need more.",
    ],
)
def test_what_is_taken_off(reply: str) -> None:
    assert cleaned(reply, "Sentence 2") == SENTENCE


@pytest.mark.parametrize(
    "sentence",
    [
        *('"Go!" he said. "Now!"', '"Go!" and "Stay!"', "The answer is: go.", "Here you are.", "Here is the dog."),
        *("Here is a dog: it runs.", "Sure, a dog runs.", "Yes: a dog runs.", "Read sentence 2: it is good."),
        *("It's the dogs' bowl.", "-5 degrees it was.", "A dog runs.\nA cat sleeps.", "Note: a dog runs."),
        *("A dog (note its fur) runs.", "Contradiction is a relation.", "1.5 dogs run.", "1999. A dog runs."),
        "Rewritten by her sister, the play ran for years.",
    ],
)
def test_what_stays(sentence: str) -> None:
    assert cleaned(sentence, "Sentence 2") == sentence


def test_what_the_reference_has_too_stays() -> None:
    for reply, reference in (("1. A dog runs.", "1. A brown dog runs."), ("Answer: go.", "Answer: stay.")):
        assert cleaned(reply, "Sentence 2", reference) == reply != cleaned(reply, "Sentence 2")


@pytest.mark.parametrize(
    "reply",
    ["a" + " " * 50_000 + "b", "a" * 100_000, "- " * 30_000, "((" * 30_000, "Answer: " * 9_000, "A dog. " * 9_000],
)
def test_a_long_reply_takes_no_time(reply: str) -> None:
    begun = time.perf_counter()
    judged(reply)
    assert time.perf_counter() - begun < 5


ONE = """
A dog runs
Really?!
Dr. Ames met Mr. and Mrs. Lee.
J. K. Rowling met George W. Bush.
The U.S. Army left at 5 p.m. on Monday.
Bread, milk, etc. were sold.
It costs $3.50, or 1.234,56 euros.
See No. 5 and Fig. 3 of Vol. 2 on p. 7.
Wait... what did you say?
"Why?" he asked.
1. Buy milk.
iv. Buy milk.
Dr . Ames ran , and the dog ran .
「はい。」と言った。
वह दौड़ता है।
""".strip().splitlines()
TWO = """
A dog runs. A cat sleeps.
1. Buy milk. 2. Buy bread.
Buy milk. 2 people came.
He left... Then she came.
He said "Stop." Then he left.
"It is late. We must go."
A dog runs. (It is brown.)
彼は走った。猫は寝た。
""".strip().splitlines()
MORE = {"A dog runs\n\nA cat sleeps": 2, "One. Two! Three? Four... Five.\nSix. Dr. No is seven.": 7}
NONE = ["", " \n ", "...", '""', "\N{DOG FACE}"]


def test_sentences_are_counted() -> None:
    wanted = dict.fromkeys(NONE, 0) | dict.fromkeys(ONE, 1) | dict.fromkeys(TWO, 2) | MORE
    assert {text: count_sentences(text) for text in wanted} == wanted


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        *(("A dog runs.", "a DOG, runs", True), ("café", "cafe\u0301", True), ("Straße", "STRASSE", True)),
        *(("Ｄog №１", "dog no1", True), ("I \N{HEAVY BLACK HEART}\ufe0f dogs", "I dogs", True)),
        *(("2 dogs", "3 dogs", False), ("cafe", "café", False), ("की", "का", False), ("走る", "走った", False)),
    ],
)
def test_equal_are_sentences_of_the_same_letters(one: str, other: str, equal: bool) -> None:
    assert (letters(one) == letters(other) != "") is equal


PIECES = [
    *"\n\"“'`():{}",
    "A dog",
    "runs",
    "Dr.",
    "3.5",
    "...",
    "!",
    "**",
    "- ",
    "1. ",
    "犬。",
    "\u0301",
    "\ud800",
    "\u2028",
]
PIECES += ["Sentence 2:", "Here is the", "sentence:", "Sure!", "<think>", "</think>", "None", "(Note:", "\nNote:"]
PIECES += [SORRY, SOURCE, POSITIVE, "Let me know if", "Return the new sentence and nothing else; all"]


@given(st.lists(st.sampled_from(PIECES), max_size=15).map(" ".join), st.sampled_from(["stop", "length"]))
def test_any_reply_is_judged_and_an_accepted_sentence_is_clean(text: str, finish: str) -> None:
    sentence, reason = judged(text, finish=finish, **LESS)
    sentence.encode()
    assert reason or (
        letters(sentence) and sentence == " ".join(sentence.split()) and judged(sentence, **LESS)[1] is None
    )
