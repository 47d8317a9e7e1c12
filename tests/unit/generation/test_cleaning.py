"""What models put around a sentence is taken off, and what belongs to it stays."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.generation.cleaning import cleaned, letters, unwrapped

SENTENCE = "A dog runs."


@pytest.mark.parametrize(
    "reply",
    [
        f" \n{SENTENCE}\t",
        f'"{SENTENCE}"',
        f"'{SENTENCE}'",
        f"“{SENTENCE}”",
        f"„{SENTENCE}“",
        f"«{SENTENCE}»",
        f"「{SENTENCE}」",
        f"`{SENTENCE}`",
        f"```\n{SENTENCE}\n```",
        f"**{SENTENCE}**",
        f"*{SENTENCE}*",
        f"_{SENTENCE}_",
        f'**"{SENTENCE}"**',
        f"- {SENTENCE}",
        f"Sentence 2: {SENTENCE}",
        f"sentence  2 : {SENTENCE}",
        f"SENTENCE 2:\n{SENTENCE}",
        f"**Sentence 2:** {SENTENCE}",
        f"**Sentence 2**: {SENTENCE}",
        f"**Sentence 2: {SENTENCE}**",
        f'Sentence 2: "{SENTENCE}"',
        f'"Sentence 2: {SENTENCE}"',
        f"Here is what you asked for:\n{SENTENCE}",
        f"Here's the rewritten sentence: {SENTENCE}",
        f"Here is a version with fewer details:\n\n{SENTENCE}",
        f'Sure! Here is a sentence that means the same:\n\n"{SENTENCE}"',
        f"Certainly! Here's one:\n**Sentence 2:** {SENTENCE}",
        f"Sure!\n{SENTENCE}",
        f"Here you go: {SENTENCE}",
        f"Here it is:\n\n{SENTENCE}",
        f"Rewritten sentence: {SENTENCE}",
        f'The new sentence is: "{SENTENCE}"',
        '"A dog runs".',
        "“A dog runs”.",
        f"{SENTENCE}<|im_end|>",
        f"{SENTENCE} </s>",
        f"- * {SENTENCE}",
        f"**Answer:** {SENTENCE}",
        f"<think>\nThey want a dog.\n\nSo a dog.\n</think>\n\n{SENTENCE}",
        f"They want a dog.</think>{SENTENCE}",
        f"\ufeff{SENTENCE}\x00",
        f"{SENTENCE}\ud83d",
        f"Contradiction: {SENTENCE}",
        f"**Entailment**: {SENTENCE}",
        f"Rewritten: {SENTENCE}",
        f"Paraphrase: {SENTENCE}",
        f"**Paraphrased sentence:** {SENTENCE}",
        f"**Rewritten sentence**\n{SENTENCE}",
        f"### Rewritten sentence\n{SENTENCE}",
        f"assistant: {SENTENCE}",
        f"assistant: Sure! {SENTENCE}",
        f"1. {SENTENCE}",
        f'1) "{SENTENCE}"',
        f"Hier ist der Satz:\n{SENTENCE}",
        f"Voici la phrase : {SENTENCE}",
        f"Aquí está la oración:\n\n{SENTENCE}",
        f"以下是改写后的句子：\n{SENTENCE}",
        f"{SENTENCE}\n\n(Note: I kept the details.)",
        f"{SENTENCE} (Note: I kept the details.)",
        f"{SENTENCE} *Note: it is the same.*",
        f"{SENTENCE}\n\nNote that I kept the details. All of them.",
        f"{SENTENCE}\n\n**Explanation:** it is the same.",
        f"{SENTENCE} Let me know if you would like another one!",
        f"{SENTENCE}\n\nI hope this helps! Let me know.",
        f"{SENTENCE}\n\nI replaced a word.",
        f'"{SENTENCE}"\n\nThis sentence preserves the meaning. It has three words.',
        f'"{SENTENCE}" (Paraphrase)',
        f"Sure! Here's a rewrite:\n\n1. **{SENTENCE}**\n\nLet me know if you need more.",
    ],
)
def test_what_is_taken_off(reply: str) -> None:
    assert cleaned(reply, "Sentence 2") == SENTENCE


@pytest.mark.parametrize(
    "sentence",
    [
        SENTENCE,
        '"Go!" he said. "Now!"',
        '"Go!" and "Stay!"',
        '"Go", she said, "or stay".',
        "The answer is: go.",
        "Here you are.",
        "'Go' or 'stay'",
        "**A** and **B**",
        "Here is a dog: it runs.",
        "Here is the dog.",
        "Sure, a dog runs.",
        "Yes: a dog runs.",
        "Sentence 1: A dog runs.",
        "Read sentence 2: it is good.",
        "It's the dogs' bowl.",
        "-5 degrees it was.",
        "A dog runs.\nA cat sleeps.",
        "Rewritten by her sister, the play ran for years.",
        "Note that a dog runs.",
        "Note: a dog runs.",
        "A dog (note its fur) runs.",
        "He ran. Then he said: note my words.",
        "Let me know if the dog runs.",
        "Contradiction is a relation.",
        "1.5 dogs run.",
        "1999. A dog runs.",
        "He said:\ngo.",
    ],
)
def test_what_stays(sentence: str) -> None:
    assert cleaned(sentence, "Sentence 2") == sentence


@pytest.mark.parametrize("reply", ["", '""', "Here is the sentence:", "<think>They want a dog", "Sentence 2:", "** **"])
def test_nothing_is_left_of_what_is_no_sentence(reply: str) -> None:
    assert letters(cleaned(reply, "Sentence 2")) == ""


@pytest.mark.parametrize(
    ("reply", "reference"),
    [
        ("1. FC Bonn lost.", "The 1. FC Bonn won."),
        ("1. A dog runs.", "1. A brown dog runs."),
        ("Answer: go.", "Answer: stay."),
        ("The answer: go.", "What was the answer: stay?"),
        ("Sure! A dog runs.", "Sure! A dog ran."),
        ("Ring me. Let me know if you come.", "Call me. Tell me whether you come."),
        ("We went.\nI left the dog.", "We went home. I did not take the dog."),
        ("It is late (note: very late).", "It is so late (note: really)."),
    ],
)
def test_what_the_reference_has_too_stays(reply: str, reference: str) -> None:
    assert cleaned(reply, "Sentence 2", reference) == reply
    assert cleaned(reply, "Sentence 2") != reply


def test_words_to_the_user_go_where_a_reference_of_several_sentences_speaks_to_nobody() -> None:
    reference = "Dr. Lee has a dog. It runs."
    assert cleaned(f"{SENTENCE} Let me know if you need more.", "Sentence 2", reference) == SENTENCE


@pytest.mark.parametrize(
    "reply",
    [
        "a" + " " * 50_000 + "b",
        "a b" * 30_000,
        "- " * 30_000,
        "-\n" * 30_000,
        "* " * 30_000 + "a",
        "((" * 30_000,
        "Here is " * 10_000,
        "Answer: " * 10_000,
        "A dog. " * 10_000,
    ],
)
def test_a_long_reply_takes_no_time(reply: str) -> None:
    begun = time.perf_counter()
    cleaned(reply, "Sentence 2", "A dog runs.")
    assert time.perf_counter() - begun < 2


def test_blank_lines_and_outer_space_of_lines_go() -> None:
    assert cleaned(" one \n\n \t\n two\r\nthree ") == "one\ntwo\nthree"


def test_a_field_is_no_pattern() -> None:
    assert cleaned("Satz (b)*: Ein Hund.", "Satz (b)*") == "Ein Hund."
    assert cleaned(": Ein Hund.", " ") == ": Ein Hund."


def test_a_pair_with_an_apostrophe_in_it() -> None:
    assert unwrapped("'It's late.'") == "It's late."
    assert unwrapped("‘It’s late.’") == "It’s late."


PIECES = [
    *" \n\"'`*_-:“”.!>",
    "a",
    "B",
    "It's",
    "Sentence 2:",
    "Sentence",
    "Here is the",
    "sentence:",
    "Sure!",
    "</think>",
    "1.",
    "(Note:",
    ")",
    "\nNote:",
    "Let me know",
    "Rewritten:",
]


@given(st.lists(st.sampled_from(PIECES), max_size=25))
def test_cleaning_twice_is_cleaning_once(pieces: list[str]) -> None:
    once = cleaned("".join(pieces), "Sentence 2")
    assert cleaned(once, "Sentence 2") == once


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("A dog runs.", "a DOG, runs"),
        ("café", "cafe\u0301"),
        ("Straße", "STRASSE"),
        ("Ｄog №１", "dog no1"),
        ("ﬁne", "fine"),
        ("I \N{HEAVY BLACK HEART}\ufe0f dogs", "I dogs"),
    ],
)
def test_equal_letters(one: str, other: str) -> None:
    assert letters(one) == letters(other) != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [("2 dogs", "3 dogs"), ("cafe", "café"), ("की", "का"), ("a dog", "a dog s"), ("走る", "走った")],
)
def test_other_letters(one: str, other: str) -> None:
    assert letters(one) != letters(other)


def test_signs_are_no_letters() -> None:
    assert letters(" _*\"'“”…\u0301\N{DOG FACE}\ufe0f—\n") == ""
