"""Roles asked one after the other, replies judged, some asked for again, sources given up and others drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from llm_server import TRANSIENT, ChatServer, always, prompt, share

from lightning_cse.generation import Pattern, Settled, Tally, Unanswered, Writer, build_pattern
from lightning_cse.llm import ChatClient, Endpoint, ReplyCache

Write = Callable[..., list[Settled | Unanswered]]

SOURCES = [f"The small {animal} sleeps under the old table today." for animal in ("cat", "dog", "hen", "cow", "ant")]


def role(name: str, reference: str = "source", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "reference": reference,
        "task": f"ROLE {name}",
        "relation": "as in these:",
        "fields": ["One", "Two"],
        "examples": [["It rains.", "Water falls."]],
        "rule": "Only the sentence.",
        **more,
    }


def pattern(reference: str = "positive", **more: Any) -> Pattern:
    """A pattern of three roles whose prompts name them."""
    node = {
        "name": "p",
        "reference": reference,
        "shots": 1,
        "seed": 0,
        "layout": {
            "prompt": "{task}\n{relation}\n{examples}\n{rule}",
            "example": "{number}. {first_field}: {first}\n{second_field}: {second}",
        },
        "roles": [
            role("positive"),
            role("intermediate", reference, checks={"less_detail_than": "positive"}),
            role("negative", reference),
        ],
    }
    return build_pattern(node | more, Path())


def asked(body: Mapping[str, Any]) -> str:
    """The role that a request is for."""
    return str(body["messages"][0]["content"]).split()[1]


def answer(body: Mapping[str, Any]) -> str:
    """A good sentence of each role; faults ask for half of one without a prompt."""
    if len(body["messages"]) == 1:
        return "half"
    words = prompt(dict(body)).rstrip(".").split()
    return {
        "positive": " ".join([*words[1:], "surely", "it", "is"]) + ".",
        "intermediate": " ".join(words[:3]) + ".",
        "negative": "Nothing of " + " ".join(words[1:4]) + " is so.",
    }[asked(body)]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Write rows for `SOURCES` with replies of a server; all of a test share its cache."""
    with ExitStack() as stack:
        cache = stack.enter_context(ReplyCache(tmp_path / "replies.sqlite"))

        def written(
            server: ChatServer,
            wanted: int = len(SOURCES),
            *,
            of: Pattern | None = None,
            samples: int = 3,
            settled: Mapping[int, bool] | None = None,
            parameters: Mapping[str, Any] | None = None,
            **endpoint: Any,
        ) -> list[Settled | Unanswered]:
            options = {"concurrency": 3, "backoff": 0.001, "timeout": 5} | endpoint
            client = ChatClient(Endpoint("m", server.url, **options), cache)
            writer = Writer(client, of or pattern(), parameters=parameters or {}, samples=samples)
            return list(writer.write(SOURCES, wanted, settled=settled or {}))

        yield written


def positions(found: list[Settled | Unanswered]) -> dict[int, bool]:
    return {each.position: each.complete for each in found if isinstance(each, Settled)}


@pytest.mark.parametrize("reference", ["positive", "source"])
def test_each_role_is_made_of_its_reference(write: Write, reference: str) -> None:
    with ChatServer(answer) as server:
        found = write(server, of=pattern(reference))
    assert positions(found) == dict.fromkeys(range(5), True)
    for each in found:
        assert isinstance(each, Settled)
        assert list(each.sentences) == ["positive", "intermediate", "negative"]
        assert each.anchor == SOURCES[each.position]
        given = each.anchor if reference == "source" else each.sentences["positive"]
        sent = {
            asked(call.body): prompt(call.body) for call in server.calls if prompt(call.body) in {each.anchor, given}
        }
        assert sent == {"positive": each.anchor, "intermediate": given, "negative": given}
        assert (each.replies, each.rejected, each.unmetered) == (3, (), 0)
        assert each.served == {"m": 3}
        assert each.prompt_tokens > each.completion_tokens > 0
    assert len(server.calls) == 15


def test_a_rejected_reply_is_asked_for_again_as_another_sample(write: Write) -> None:
    tries: Counter[str] = Counter()

    def echoes_first(body: dict[str, Any]) -> str:
        tries[f"{asked(body)} {prompt(body)}"] += 1
        first = tries[f"{asked(body)} {prompt(body)}"] == 1
        return prompt(body) if first and asked(body) == "intermediate" else answer(body)

    with ChatServer(echoes_first) as server:
        found = write(server, parameters={"seed": 7, "temperature": 1.0})
        again = write(server, parameters={"seed": 7, "temperature": 1.0})
    assert positions(found) == positions(again) == dict.fromkeys(range(5), True)
    assert len(server.calls) == 20  # and nothing the second time, rejected replies included
    for each in found:
        assert isinstance(each, Settled)
        (rejected,) = each.rejected
        assert (rejected.role, rejected.reason) == ("intermediate", "echo of the source")
        assert rejected.text == each.sentences["positive"]
        assert each.replies == 4
    seeds = Counter((asked(call.body), call.body["seed"]) for call in server.calls)
    assert seeds == {("positive", 7): 5, ("intermediate", 7): 5, ("intermediate", 8): 5, ("negative", 7): 5}


def test_roles_that_ask_the_same_are_answered_apart(write: Write) -> None:
    seen: Counter[str] = Counter()

    def counts(body: dict[str, Any]) -> str:
        seen[prompt(body)] += 1
        return f"Version {'abcd'[seen[prompt(body)] - 1]} of it."

    same = [role(name) | {"task": "the same"} for name in ("positive", "another", "third")]
    with ChatServer(counts) as server:
        found = write(server, 2, of=pattern(roles=same, reference="source"), samples=2, concurrency=1)
        again = write(server, 2, of=pattern(roles=same, reference="source"), samples=2, concurrency=1)
        assert len(server.calls) == 6
    assert found == again
    for each in found:
        assert isinstance(each, Settled)
        assert list(each.sentences.values()) == [f"Version {letter} of it." for letter in "abc"]
        assert each.rejected == ()


def test_a_source_is_given_up_after_so_many_samples_and_the_next_is_drawn(write: Write) -> None:
    def refuses_hens(body: dict[str, Any]) -> str:
        hen = "hen" in prompt(body) and asked(body) == "negative"
        return "I'm sorry, but I can't help with that." if hen else answer(body)

    with ChatServer(refuses_hens) as server:
        found = write(server, 3, concurrency=1)
        assert positions(found) == {0: True, 1: True, 2: False, 3: True}
        assert sum("hen" in prompt(call.body) for call in server.calls) == 2 + 3
        hen = next(each for each in found if isinstance(each, Settled) and not each.complete)
        assert list(hen.sentences) == ["positive", "intermediate"]
        assert [each.reason for each in hen.rejected] == ["refused"] * 3
        # As many as are wanted in the end, whatever the order of coming: all that is settled is a prefix of the order.
        assert positions(write(server, 3, concurrency=5)) == positions(found)


def test_nothing_is_asked_for_what_is_settled(write: Write) -> None:
    with ChatServer(answer) as server:
        found = write(server, 3, settled={0: True, 1: False, 3: True})
        assert positions(found) == {2: True}  # 0, 2 and 3 are three
        assert len(server.calls) == 3
        assert write(server, 3, settled={0: True, 1: True, 2: True}) == []
        assert len(server.calls) == 3


def test_too_few_sources_end_with_fewer(write: Write) -> None:
    with ChatServer(lambda body: "I'm sorry, but I can't help with that.") as server:
        assert positions(write(server, 4, samples=1)) == dict.fromkeys(range(5), False)


def test_a_source_without_a_reply_is_not_given_up(write: Write) -> None:
    def cow(body: dict[str, Any], _: int) -> str | None:
        return "error" if "cow" in prompt(body) else None

    with ChatServer(answer, cow) as server:
        found = write(server, retries=1)
        (lost,) = [each for each in found if isinstance(each, Unanswered)]
        assert lost.position == 3
        assert "status 500" in lost.reason
        assert positions(found) == dict.fromkeys([0, 1, 2, 4], True)
        server.plan = None
        calls = len(server.calls)
        assert positions(write(server, settled=positions(found))) == {3: True}
    assert len(server.calls) == calls + 3


def test_what_no_asking_mends_gives_a_source_up(write: Write) -> None:
    with ChatServer(answer, lambda body, _: "too_long" if "ant" in prompt(body) else None) as server:
        found = write(server, 5)
    ant = next(each for each in found if isinstance(each, Settled) and each.position == 4)
    assert not ant.complete
    assert [(each.role, each.reason) for each in ant.rejected] == [("positive", "refused by the endpoint")]
    assert "maximum context length" in ant.rejected[0].text


def test_through_all_faults_of_the_way(write: Write) -> None:
    with ChatServer(answer, share(0.4, TRANSIENT, times=2)) as server:
        found = write(server, timeout=0.3, retries=4)
    assert positions(found) == dict.fromkeys(range(5), True)
    assert any(call.fault for call in server.calls)
    assert max(server.answered.values()) <= 2  # intermediate and negative are asked about one sentence


def test_leaving_cuts_off_what_is_under_way(tmp_path: Path) -> None:
    with ChatServer(answer, seconds=0.01) as server, ReplyCache(tmp_path / "replies.sqlite") as cache:
        client = ChatClient(Endpoint("m", server.url, concurrency=2), cache)
        writing = Writer(client, pattern(), parameters={}, samples=1).write(SOURCES, 5, settled={})
        first = next(writing)
        writing.close()
        calls = len(server.calls)
        assert isinstance(first, Settled)
        assert calls < 15
        assert len(cache) >= 3


def test_tally(write: Write) -> None:
    def refuses_hens(body: dict[str, Any]) -> str:
        return "I'm sorry, but I can't help with that." if "hen" in prompt(body) else answer(body)

    with ChatServer(refuses_hens) as server:
        found = write(server, 4, samples=2)
    tally = Tally(["positive", "intermediate", "negative"])
    for each in found:
        assert isinstance(each, Settled)
        tally.add(each)
    assert tally.acceptance() == {
        "sources": {"complete": 4, "given_up": 1},
        "roles": {
            "positive": {"asked": 6, "accepted": 4, "rejected": {"refused": 2}},
            "intermediate": {"asked": 4, "accepted": 4, "rejected": {}},
            "negative": {"asked": 4, "accepted": 4, "rejected": {}},
        },
    }
    assert (tally.rejected, tally.replies, tally.unmetered, tally.served) == (2, 14, 0, Counter(m=14))
    expected = (tally.prompt_tokens * 3 + tally.completion_tokens * 5) / 1e6
    assert tally.cost({"input": 3, "output": 5}) == pytest.approx(expected)
    assert tally.cost(None) is None


def test_without_counts_the_cost_is_unknown(write: Write) -> None:
    with ChatServer(answer, always("no_usage")) as server:
        found = write(server, 2)
    tally = Tally(["positive", "intermediate", "negative"])
    for each in found:
        assert isinstance(each, Settled)
        tally.add(each)
    assert (tally.unmetered, tally.cost({"input": 3, "output": 5})) == (6, None)
