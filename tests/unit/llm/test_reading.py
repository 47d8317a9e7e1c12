"""What replies say, as they come from real servers."""

import json
import time

import pytest

from lightning_cse.llm import read_answer
from lightning_cse.llm.reading import read_reply

SAID = "The ferry is late."
STRUCTURED = json.dumps({"sentence": SAID})


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (SAID, SAID),
        ("", ""),
        (STRUCTURED, SAID),
        (f"  ```json\n{STRUCTURED}\n```", SAID),
        (f"{STRUCTURED}\n\nI hope this helps!", SAID),
        (f"<think>\nA ferry?\n</think>\n\n{STRUCTURED}", SAID),
        (f"So.</think>{SAID}", SAID),
        (f'<thinking>{{"sentence": "A draft."}}</thinking> Here you are: {STRUCTURED}', SAID),
        ("<think>It may be that the ferry", ""),
        (f"Certainly! The JSON is:\n\n{STRUCTURED}", SAID),
        (f'{{"note": 1, "sentence": "{SAID}"}}', SAID),
        ('{"sentence": "Two\nlines."}', "Two\nlines."),
        (json.dumps({"sentence": STRUCTURED}), SAID),
        ('{"sentence": 0.25}', "0.25"),
        # No JSON: braces and brackets of a sentence.
        ("The set {a, b} is small.", "The set {a, b} is small."),
        ("[Applause] The crowd cheered.", "[Applause] The crowd cheered."),
        # Broken JSON, and JSON with something else.
        (STRUCTURED[:-6], None),
        (f"Certainly: {STRUCTURED[:20]}", None),
        ("{broken", None),
        ('{"sentence": null}', None),
        ('{"sentence": true}', None),
        ('{"sentence": ["The ferry is late."]}', None),
        ('{"sentence": {"text": "The ferry is late."}}', None),
        ('{"text": "The ferry is late."}', None),
        ('["The ferry is late."]', None),
        ("[" * 100_000, None),
        ('{"sentence": ' * 100_000, None),
        (f'{{"sentence": {"9" * 5_000}}}', None),
    ],
)
def test_answers(reply, answer):
    assert read_answer(reply, "sentence") == answer


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ('{"label": "neutral"}', "neutral"),
        ('{"label": "neutral", "reason": "No."}', None),
        ('["neutral"]', None),
        ("{}", None),
    ],
)
def test_without_a_key_the_only_one_is_read(reply, answer):
    assert read_answer(reply) == answer


@pytest.mark.parametrize(
    "piece", ["{", '{"', '{"a":', "<think>", "</think", "a ", "[[", " ", "```json "]
)
def test_long_reply_is_read_in_linear_time(piece):
    start = time.process_time()
    read_answer(piece * (2**20 // len(piece)), "sentence")

    assert time.process_time() - start < 5


def completion(finish="stop", **body):
    choice = {"message": {"content": SAID}, "finish_reason": finish}

    return read_reply(json.dumps({"choices": [choice], **body}).encode())


@pytest.mark.parametrize(
    ("reported", "count"),
    [
        (12, 12),
        ("12", 12),
        (0, 0),
        *dict.fromkeys((None, "many", True, -1, 1.5, 10**20)).items(),
        ([3], None),
    ],
)
def test_counts_of_tokens(reported, count):
    reply = completion(usage={"prompt_tokens": reported, "completion_tokens": 1})
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == (SAID, count, 1)


@pytest.mark.parametrize("usage", [None, [], "12", {}])
def test_odd_usage_and_finish_leave_the_text(usage):
    reply = completion(finish={"reason": "stop"}, usage=usage)
    assert (reply.text, reply.finish, reply.tokens) == (SAID, "unknown", 0)


@pytest.mark.parametrize(
    "body", [b"[" * 200_000, b"{}", b'{"choices": [{"message": {"content": ["a"]}}]}', b"\xff"]
)
def test_no_chat_completion(body):
    with pytest.raises(ValueError, match="not a chat completion; it begins"):
        read_reply(body)
