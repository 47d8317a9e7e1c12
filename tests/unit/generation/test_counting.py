"""Sentences of raw text: counted and ended, whatever stands in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.generation.counting import count_sentences, is_ended

ONE = [
    "A dog runs",
    "A dog runs.",
    "Is it late?",
    "Stop!",
    "Really?!",
    "No way!!!",
    "Dr. Ames met Mr. and Mrs. Lee.",
    "Prof. Dr. Meyer spoke.",
    "J. K. Rowling and George W. Bush met.",
    "F. I. du Pont was a firm.",
    "The U.S. Army left at 5 p.m. on Monday.",
    "They sued him in Symm v. United States, and won.",
    "Bread, milk, etc. were sold.",
    "Fruit, e.g. Apples, is sold here, i.e. In this shop.",
    "Apple Inc. Chief Tim Cook spoke.",
    "Martin Luther King Jr. Day is in January.",
    "She lives in St. Louis, Mo.",
    "Police in Boise, Idaho, and in Tampa, Fla. Police too, came.",
    "It costs $3.50, or 1.234,56 euros.",
    "Version 2.0.1 of node.js is at www.example.com now.",
    "See No. 5 and Fig. 3 of Vol. 2 on p. 7.",
    "It was on Jan. 5 of that year.",
    "Wait... what did you say?",
    "Well... I do not know.",
    "Well . . . I do not know.",
    "He came… and went.",
    '"Why?" he asked.',
    '"Why?" Anna Smith asked.',
    "“Go!” Anna shouted.",
    'He said: "Go away. I am tired."',
    'The sign "Stop. Look. Listen." is old.',
    "The house (it is old. Very old.) stands.",
    "Yahoo! Inc. grew.",
    "He shouted no! and left.",
    "Go, she said! - and went.",
    "1. Buy milk.",
    "a. Buy milk.",
    "iv. Buy milk.",
    "- Buy milk.",
    "Dr . Ames ran , and the dog ran .",
    "彼は走った。",
    "「はい。」と言った。",
    "वह दौड़ता है।",
    "\u200f\u05d4\u05db\u05dc\u05d1 \u05e8\u05e5.",
    "A dog runs. \N{DOG FACE}",
    'He said "Go." or "Stay." to it.',
    '"Go" or "stay"',
    "They met at 5 p.m. / 17:00.",
]

TWO = [
    "A dog runs. A cat sleeps.",
    "A dog runs. a cat sleeps. A cow eats.",
    "A dog runs.\nA cat sleeps.",
    "A dog runs\n\nA cat sleeps",
    "- A dog runs\n- A cat sleeps",
    "1. Buy milk. 2. Buy bread.",
    "Buy milk. 2 people came.",
    "Is it late? It is.",
    "Stop! The light is red.",
    "He left... Then she came.",
    'He said "Stop." Then he left.',
    '"It is late. We must go."',
    '"Is it late?" The man nodded.',
    "A dog runs. (It is brown.)",
    "A dog runs. [A note]",
    'A dog runs. "It is brown".',
    "They live in the U.S. The dog is big.",
    "It was 5 p.m. They left.",
    "The firm is Acme Inc. It is small.",
    "It was World War I. It was long.",
    "He said no. The dog barked.",
    "He was born in 1999. Dogs bark.",
    'A 5" screen is small. A 6" screen is not.',
    'The dog "Rex runs. The cat sleeps.',
    "The dog :-) runs. The cat sleeps.",
    "The dog ran . The cat slept .",
    "彼は走った。猫は寝た。",
    "वह दौड़ता है। वह सोता है।",
    "\u200fالكلب يركض. القطة تنام.",
    "Ein Hund rennt. Über ihm fliegt etwas.",
    "A dog runs.** This means the same.",
    '"A dog runs." or "A dog is running."',
    "“A dog runs.” or “A dog is running.”",
    '"Go!" and "Stay!"',
    "A dog runs. / A dog is running.",
]


@pytest.mark.parametrize("text", ONE)
def test_one_sentence(text: str) -> None:
    assert count_sentences(text) == 1


@pytest.mark.parametrize("text", TWO)
def test_two_sentences(text: str) -> None:
    assert count_sentences(text) == 2


@pytest.mark.parametrize("text", ["", " \n ", "...", "?!", '""', "\N{DOG FACE}"])
def test_no_sentence(text: str) -> None:
    assert count_sentences(text) == 0


def test_many() -> None:
    assert count_sentences('"Go." or "Run." or "Leave."') == 3
    assert count_sentences("One. Two! Three? Four... Five.\nSix. Dr. No is seven.") == 7


@given(st.lists(st.sampled_from(["A dog runs.", "Is it late?", "Stop!", "We met Dr. Lee at 3.5 km."]), max_size=6))
def test_joined_sentences_are_as_many_as_were_joined(sentences: list[str]) -> None:
    assert count_sentences(" ".join(sentences)) == count_sentences("\n".join(sentences)) == len(sentences)


@pytest.mark.parametrize(
    "text",
    ["A dog runs.", "Late?", "Go!", "Well...", "Well…", 'He said "Go."', "(So it is.)", "It ran .", "走った。", "है।"],
)
def test_an_end(text: str) -> None:
    assert is_ended(text)


@pytest.mark.parametrize(
    "text", ["", "A dog", "A dog,", "A dog runs. It", "They met Dr.", "They met J.", 'He said "Go', "走っ"]
)
def test_no_end(text: str) -> None:
    assert not is_ended(text)
