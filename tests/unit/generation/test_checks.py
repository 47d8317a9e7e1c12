"""Every reason to reject a reply, from both sides; what is left of an accepted one; faults of the config."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.generation.checks import REASONS, Checks
from lightning_cse.generation.pattern import Prompt
from lightning_cse.llm import Reply

SOURCE = "A brown dog is running across the wet grass."
POSITIVE = "A dog with brown fur runs over damp grass."

EXAMPLES = (
    ("Two girls sing.", "Two young women are singing."),
    ("The bus was late again.", "Once more, the bus did not come in time."),
)
PROMPT = Prompt(
    "Write a sentence that means the same as the one the user gives you, in other words.\n\n"
    "Sentence 2 of each example means what Sentence 1 of it means.\n\n"
    + "\n\n".join(f"Example {number}\nSentence 1: {a}\nSentence 2: {b}" for number, (a, b) in enumerate(EXAMPLES, 1))
    + "\n\nReturn the new sentence and nothing else; all information has to be preserved in it.",
    ("Sentence 1", "Sentence 2"),
    EXAMPLES,
)


def judge(
    text: str,
    checks: Checks | None = None,
    *,
    source: str = SOURCE,
    reference: str | None = None,
    written: dict[str, str] | None = None,
    finish_reason: str = "stop",
    refusal: str | None = None,
) -> tuple[str, str | None]:
    judged = (checks or Checks()).judge(
        Reply(text, finish_reason, refusal),
        source=source,
        reference=reference or source,
        written=written or {},
        prompt=PROMPT,
    )
    return judged.sentence, judged.reason


def reason(text: str, checks: Checks | None = None, **rest: Any) -> str | None:
    return judge(text, checks, **rest)[1]


@pytest.mark.parametrize(
    "text",
    [
        *(POSITIVE, "犬が走っている。", "3", "A dog runs"),
        *("None of them came.", "Yes, the bridge is closed.", "Rewritten by her sister, the play ran for years."),
        *("No dog.", "Sentence 2 is short.", "Nothing moved."),
    ],
)
def test_a_sentence_is_accepted_as_it_is(text: str) -> None:
    assert judge(text) == (text, None)


def test_what_stands_around_the_sentence_is_no_reason() -> None:
    assert judge(f'Sure! Here is the sentence:\n\n**Sentence 2:** "{POSITIVE}"') == (POSITIVE, None)


def test_the_sentence_stands_on_one_line() -> None:
    assert judge("A dog \t runs,\nfast.", Checks(most_sentences=None)) == ("A dog runs, fast.", None)


@pytest.mark.parametrize(
    "text", ["", " \n", "...", '""', "“?!”", "**", "Sentence 2:", "Here is the sentence:", "\ud83d"]
)
def test_empty(text: str) -> None:
    assert reason(text) == "empty"


@pytest.mark.parametrize(
    "text",
    ["N/A", "None", "Yes.", "**No**", "n/a.", "No change", "Sentence 2", "sentence 1.", "SENTENCE", "Sentence 12"],
)
def test_what_only_fills_a_place_is_empty(text: str) -> None:
    assert reason(text) == "empty"
    assert reason(text, finish_reason="length") == "cut off"


def test_a_word_may_stand_for_a_word() -> None:
    assert reason("No.", source="Never!") is None
    assert reason("No.", reference="Never!") is None
    assert reason("No.", source="Never ever!") == "empty"
    assert reason("Sentence 2", source="Chapter three") is None


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        '"I cannot assist with this request."',
        "Sentence 2: Sorry, no.",
        "Please provide a sentence.",
        "Could you please provide the sentence you'd like me to rewrite?",
    ],
)
def test_refused_in_words(text: str) -> None:
    assert reason(text) == "refused"


def test_refused_by_the_endpoint() -> None:
    assert reason(POSITIVE, finish_reason="content_filter") == "refused"
    assert reason("", refusal="I cannot help with that.") == "refused"
    assert reason("", finish_reason="content_filter") == "refused"


@pytest.mark.parametrize("text", ["He can't believe it.", "Sorry seems to be the hardest word.", "They refuse to go."])
def test_words_of_a_refusal_are_none(text: str) -> None:
    assert reason(text) is None


def test_what_reads_as_a_refusal_may_be_answered_by_one() -> None:
    text = "I apologize, but I can't help you with that."
    assert reason(text, source="I'm sorry, but I can't assist you with this.") is None
    assert reason(text, reference="I'm sorry, but I can't assist you with this.") is None
    assert reason(text, source="A man says that he is sorry.") == "refused"


OTHERS = Checks(refused_words=["Es tut mir leid, aber", "Désolé", "申し訳", "je ne peux"])


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Es tut mir leid, aber das geht nicht.", "refused"),
        ("ES TUT  MIR LEID, ABER DAS GEHT NICHT.", "refused"),
        ('"De\u0301sole\u0301, impossible."', "refused"),
        ("申し訳ありません。", "refused"),
        ("Je ne peux pas.", "refused"),
        ("Es tut mir leid.", None),
        ("Je ne peuxerai.", None),
        ("Le chien est désolé.", None),
        ("I'm sorry, but I can't help with that.", "refused"),
    ],
)
def test_refused_in_the_words_of_another_language(text: str, want: str | None) -> None:
    assert reason(text, OTHERS) == want
    assert reason("Je ne peux pas.") is None


def test_a_sentence_that_begins_as_a_refusal_may_be_answered_by_one() -> None:
    assert reason("Désolé, il est parti.", OTHERS, source="Désolé, il n’est plus là.") is None
    assert reason("Désolé, il est parti.", OTHERS, source="Il n’est plus là.") == "refused"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("A dog with brown fur runs over the", "cut off"),
        ("A dog runs. It", "cut off"),
        ("A dog runs with Mr.", "cut off"),
        ("", "cut off"),
        ("<think>The user wants a dog. So", "cut off"),
        ("A dog with brown fur runs.", None),
        ('"A dog with brown fur runs."', None),
        ("A dog runs. A cat sleeps.", "several sentences"),
    ],
)
def test_cut_off(text: str, want: str | None) -> None:
    assert reason(text, finish_reason="length") == want


def test_a_reply_that_ended_by_itself_needs_no_full_stop() -> None:
    assert reason("A dog with brown fur runs over the") is None


@pytest.mark.parametrize(
    "text",
    [
        f"Sentence 1: {SOURCE}",
        f"Sentence 1: {SOURCE}\nSentence 2: {POSITIVE}",
        f"{POSITIVE} Sentence 2: So it is.",
        f"Sentence 4: {POSITIVE}",
        f"{POSITIVE}\n**sentence 1**: more",
        "Two girls sing!",
        "two young women are singing",
        "Once more the bus did not come in time",
        "It means the same as the one the user gives you, in other words.",
        "RETURN THE NEW SENTENCE AND NOTHING ELSE, ALL OF IT",
    ],
)
def test_echo_of_the_prompt(text: str) -> None:
    assert reason(text) == "echo of the prompt"


@pytest.mark.parametrize(
    "text",
    [
        "It is the same as the one the user has.",  # seven words of the prompt
        "Return the new sentence and nothing.",
        "He read sentence 2: it was long.",
        "Sentence 1 is long.",
        "Two girls sing and dance.",
    ],
)
def test_words_of_the_prompt_are_no_echo(text: str) -> None:
    assert reason(text) is None


def test_what_the_source_has_too_is_no_echo_of_the_prompt() -> None:
    run = "all information has to be preserved in it"
    assert reason(f"We say that {run}.") == "echo of the prompt"
    assert reason(f"We say that {run}.", source=f"They said that {run}.") is None
    assert reason(f"We say that {run}.", reference=f"They said that {run}.") is None
    assert reason("The note says Sentence 1: no dogs.") == "echo of the prompt"
    assert reason("The note says Sentence 1: no dogs.", source="A note has Sentence 1: dogs are not allowed.") is None


def test_the_second_sentence_of_an_example_answers_the_first() -> None:
    first, second = EXAMPLES[0]
    assert reason(second, source=first) is None
    assert reason(first, source=first) == "echo of the source"
    assert reason(EXAMPLES[1][1], source=first) == "echo of the prompt"


@pytest.mark.parametrize("text", [SOURCE, SOURCE.upper(), f"“{SOURCE[:-1]}”", SOURCE.replace(" ", "\n"), POSITIVE])
def test_echo_of_the_source(text: str) -> None:
    assert reason(text, reference=POSITIVE) == "echo of the source"


def test_another_number_is_no_echo_of_the_source() -> None:
    assert reason("There are 3 dogs.", source="There are 2 dogs.") is None


@pytest.mark.parametrize(
    ("text", "most", "reference", "want"),
    [
        ("A dog runs. It is brown.", 1, SOURCE, "several sentences"),
        ("A dog runs\nIt is brown", 1, SOURCE, "several sentences"),
        (f"{POSITIVE}\n\nAnother dog does so, too.", 1, SOURCE, "several sentences"),
        (f"{POSITIVE}\n\nThis sentence preserves the meaning. So it is.", 1, SOURCE, None),
        (f"{POSITIVE} (Note: I kept the details.)", 1, SOURCE, None),
        (f"{POSITIVE} Let me know if you need another one.", 1, SOURCE, None),
        ('"A dog runs." or "A dog is running."', 1, SOURCE, "several sentences"),
        ("1. A dog runs.\n2. A dog is running.", 1, SOURCE, "several sentences"),
        ("A dog runs. It is brown.", 2, SOURCE, None),
        ("A dog runs. It is brown. It is wet.", 2, SOURCE, "several sentences"),
        ("A dog runs. It is brown. It is wet.", None, SOURCE, None),
        ("A dog runs. It is brown.", 1, "A brown dog is here. It runs fast.", None),
        ("A dog runs. It is brown. So.", 1, "A brown dog is here. It runs fast.", "several sentences"),
        ("Mr. J. Lee of the U.S. Navy has 3.5 dogs.", 1, SOURCE, None),
    ],
)
def test_several_sentences(text: str, most: int | None, reference: str, want: str | None) -> None:
    assert reason(text, Checks(most_sentences=most), reference=reference) == want


@pytest.mark.parametrize(
    ("words", "reference_words", "checks", "want"),
    [
        (16, 1, Checks(), None),
        (17, 1, Checks(), "too long"),
        (25, 10, Checks(), None),
        (26, 10, Checks(), "too long"),
        (26, 10, Checks(longest=None), None),
        (10, 10, Checks(longest=1, always_allowed=0), None),
        (11, 10, Checks(longest=1, always_allowed=0), "too long"),
        (12, 10, Checks(longest=1, always_allowed=12), None),
    ],
)
def test_too_long(words: int, reference_words: int, checks: Checks, want: str | None) -> None:
    reference = " ".join(f"r{number}" for number in range(reference_words))
    assert reason(" ".join(f"w{number}" for number in range(words)), checks, reference=reference) == want


@pytest.mark.parametrize(
    ("words", "reference_words", "shortest", "want"),
    [
        (2, 10, 0.3, "too short"),
        (3, 10, 0.3, None),
        (1, 6, 0.3, "too short"),
        (1, 5, 0.3, None),  # of a few words nothing is asked
        (1, 5, 3, None),
        (1, 99, None, None),
    ],
)
def test_too_short(words: int, reference_words: int, shortest: float | None, want: str | None) -> None:
    reference = " ".join(f"r{number}" for number in range(reference_words))
    text = " ".join(f"w{number}" for number in range(words))
    assert reason(text, Checks(shortest=shortest), reference=reference) == want


def test_an_answer_is_no_paraphrase_of_a_question() -> None:
    question = "What is the capital of France?"
    assert reason("Paris.", Checks(shortest=0.3), source=question) == "too short"
    assert reason("Which city is France governed from?", Checks(shortest=0.3), source=question) is None


LESS = Checks(less_detail_than="positive")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("A dog is running.", None),
        ("A dog with soft brown fur runs over damp grass.", "more detail"),  # ten words for the positive's nine
        ("A cat with black fur sleeps under dry leaves.", None),  # as many words, and farther from the source
        ("A brown dog is running across the old grass.", "more detail"),  # as many, and nearer to it
        ("A dog with brown fur jumps over damp grass.", "more detail"),  # as many, and as near
        (f"{POSITIVE[:-1]}!", "equal to another role"),
    ],
)
def test_more_detail(text: str, want: str | None) -> None:
    assert reason(text, LESS, written={"positive": POSITIVE}) == want


def test_detail_is_compared_with_the_role_that_is_named() -> None:
    written = {"other": "No.", "positive": POSITIVE}
    assert reason("A dog is running.", LESS, written=written) is None
    assert reason("A dog is running.", Checks(less_detail_than="other"), written=written) == "more detail"
    assert reason("A dog with soft brown fur runs over damp grass.", written=written) is None


def test_a_role_that_was_not_written_cannot_be_compared_with() -> None:
    with pytest.raises(KeyError, match="no sentence for 'positive', only for"):
        reason("A dog.", LESS, written={"other": "No."})


def test_equal_to_another_role() -> None:
    written = {"positive": POSITIVE, "intermediate": "A dog runs."}
    assert reason("a dog RUNS", written=written) == "equal to another role"
    assert reason(POSITIVE, written=written) == "equal to another role"
    assert reason("A dog ran.", written=written) is None


def test_the_reasons_are_told_in_their_order() -> None:
    """Replies with all faults from one on: the first is told."""
    source = " ".join(["Run", *"abcdefghi"])
    written = {"positive": f"{source} here"}
    everything = f"Sentence 1: {source}. {source}. {source}. I am"
    assert reason("", LESS, refusal="no", finish_reason="length", written=written) == "refused"
    assert reason(everything, LESS, source=source, finish_reason="length", written=written) == "cut off"
    assert reason(everything, LESS, source=source, written=written) == "echo of the prompt"
    several = " ".join(["W"] * 20) + ". It is " + " ".join(["w"] * 20)
    assert reason(several, LESS, source=source, written=written) == "several sentences"
    assert reason(several.replace(".", ""), LESS, source=source, written=written) == "too long"
    assert reason("W", Checks(shortest=0.3), source=source, written={"positive": "W"}) == "too short"
    assert len(REASONS) == len(set(REASONS)) == 10


WORDS = st.sampled_from(
    [
        *("A dog", "runs", "It", "I'm sorry, but I can't help with that.", "Dr.", "U.S.", "3.5", "...", ".", "!", "?"),
        *("\n", '"', "“", "”", "'", "`", "**", "*", "_", "(", ")", ":", "- ", "1. ", "Sentence 1", "Sentence 2:"),
        *(
            "Here is the",
            "sentence:",
            "Sure!",
            "<think>",
            "</think>",
            "犬。",
            "है।",
            "\u0301",
            "\ud800",
            "\x00",
            "\u2028",
        ),
        *("Return the new sentence and nothing else; all", SOURCE, POSITIVE, EXAMPLES[0][1]),
        *("None", "Rewritten:", "(Note:", "\nNote:", "Let me know if", "I kept", "/", '"A." or "B."', "Je ne peux"),
    ]
)
TEXTS = st.one_of(st.text(max_size=40), st.lists(WORDS, max_size=12).map("".join), st.lists(WORDS).map(" ".join))
CHECKS = st.sampled_from([Checks(), Checks(None, None), LESS, Checks(2, 1.0, 3, "positive", 0.5), OTHERS])


@given(TEXTS, TEXTS, TEXTS, CHECKS, st.sampled_from(["stop", "length", "content_filter", ""]))
def test_any_text_is_judged_and_what_is_accepted_stays_so(
    text: str, source: str, other: str, checks: Checks, finish_reason: str
) -> None:
    def judged(text: str) -> tuple[str, str | None]:
        written = {"positive": other}
        return judge(text, checks, source=source, reference=other, written=written, finish_reason=finish_reason)

    sentence, why = judged(text)
    assert why is None or why in REASONS
    assert sentence == " ".join(sentence.split())
    sentence.encode()
    if why is None:
        assert sentence
        assert judged(sentence) == (sentence, None)


@pytest.mark.parametrize(
    "node",
    [
        {},
        {"most_sentences": None, "longest": None, "less_detail_than": None},
        {"most_sentences": 3, "longest": 2, "always_allowed": 0, "less_detail_than": "positive"},
        {"shortest": 0.3, "refused_words": ["Es tut mir leid"]},
        {"shortest": 2.5, "longest": 2.5},
        {"shortest": 9, "longest": None, "refused_words": []},
        {"shortest": None, "refused_words": None},
    ],
)
def test_a_right_node(node: dict[str, Any]) -> None:
    assert list(Checks.faults(node, "checks", ["positive"])) == []
    Checks(**node)


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        (3, "at: 3 is no mapping of checks"),
        (None, "at: None is no mapping of checks"),
        (["longest"], "at: ['longest'] is no mapping of checks"),
        ({"longst": 2}, "at.longst: there is no such key - did you mean 'longest'?; there are most_sentences, longest"),
        ({3: 2}, "at.3: there is no such key; there are"),
        ({"most_sentences": 0}, "at.most_sentences: 0 is not a whole number of at least 1, or null"),
        ({"most_sentences": 1.5}, "at.most_sentences: 1.5 is not"),
        ({"most_sentences": True}, "at.most_sentences: True is not"),
        ({"most_sentences": "1"}, "at.most_sentences: '1' is not"),
        ({"longest": 0}, "at.longest: 0 is not a number above 0, or null"),
        ({"longest": float("nan")}, "at.longest: nan is not"),
        ({"longest": float("inf")}, "at.longest: inf is not"),
        ({"longest": True}, "at.longest: True is not"),
        ({"longest": [2]}, "at.longest: [2] is not"),
        ({"shortest": 0}, "at.shortest: 0 is not a number above 0, or null"),
        ({"shortest": "x", "longest": 1}, "at.shortest: 'x' is not"),
        ({"shortest": 3}, "at.shortest: 3 is more than longest, 2.5: no sentence is both"),
        ({"refused_words": "Nein"}, "at.refused_words: 'Nein' is not a list of beginnings"),
        ({"refused_words": ["Nein", " "]}, "at.refused_words: ['Nein', ' '] is not"),
        ({"refused_words": [3]}, "at.refused_words: [3] is not"),
        ({"always_allowed": None}, "at.always_allowed: None is not a whole number of at least 0"),
        ({"always_allowed": -1}, "at.always_allowed: -1 is not"),
        (
            {"less_detail_than": "postive"},
            "at.less_detail_than: 'postive' is no role that is asked before this one - did you mean 'positive'?; "
            "there are positive, negative",
        ),
        ({"less_detail_than": ["positive"]}, "at.less_detail_than: ['positive'] is no role"),
    ],
)
def test_a_fault_is_told_with_its_key(node: Any, fault: str) -> None:
    (told,) = Checks.faults(node, "at", ["positive", "negative"])
    assert told.startswith(fault)


def test_the_first_role_has_none_before_it() -> None:
    (told,) = Checks.faults({"less_detail_than": "positive"}, "at", [])
    assert told.endswith("before this one; this role is the first")


def test_all_faults_are_told_at_once() -> None:
    node = {"most_sentences": 0, "longest": 0, "shortest": 0, "always_allowed": -1, "less_detail_than": "x", "more": 1}
    node |= {"refused_words": 3}
    keys = {fault.split(":")[0] for fault in Checks.faults(node, "at", [])}
    assert keys == {f"at.{name}" for name in node}
