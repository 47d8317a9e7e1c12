"""What models put around a sentence is taken off, and what belongs to it stays."""

from __future__ import annotations

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
    ],
)
def test_what_stays(sentence: str) -> None:
    assert cleaned(sentence, "Sentence 2") == sentence


@pytest.mark.parametrize("reply", ["", '""', "Here is the sentence:", "<think>They want a dog", "Sentence 2:", "** **"])
def test_nothing_is_left_of_what_is_no_sentence(reply: str) -> None:
    assert letters(cleaned(reply, "Sentence 2")) == ""


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
