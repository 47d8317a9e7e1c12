"""Evaluation of a language model behind a local server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from llm_server import ChatServer, prompt

from lightning_cse.data import read_corpus
from lightning_cse.data.corpora import sample_dir
from lightning_cse.engine.load import load_model
from lightning_cse.errors import ConfigError, EncoderError, TaskError
from lightning_cse.evaluation.inli import HYPOTHESES
from lightning_cse.llm import LLMError
from lightning_cse.llm import asker as asking
from lightning_cse.papers import significance
from lightning_cse.papers.points import Point, RunsIndex
from lightning_cse.runs import Run

KEY = "sk-hush-0123456789abcdef"
NAMES = {
    kind: {"explicit": "explicit entailment", "implied": "implied entailment"}.get(kind, kind) for kind in HYPOTHESES
}
ROWS = 4
PAIRS = ROWS * len(HYPOTHESES)
SAMPLE = ("corpora=sample", "paths=sample")

Evaluate = Callable[..., Run]
Serve = Callable[..., ChatServer]


def kinds() -> dict[str, tuple[int, str]]:
    """Row and type of every test pair, by what is asked about it."""
    rows = read_corpus("inli", "test", sample_dir()).select(range(ROWS))
    return {
        f"Premise: {row['premise']}\nHypothesis: {row[column]}": (number, kind)
        for number, row in enumerate(rows)
        for kind, (column, _) in HYPOTHESES.items()
    }


def right(body: dict[str, Any]) -> str:
    return NAMES[kinds()[prompt(body)][1]]


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda *arguments, **named: stack.enter_context(ChatServer(*arguments, **named))


def asks(server: ChatServer | str, *more: str) -> tuple[str, ...]:
    url = server if isinstance(server, str) else server.url
    short = ("llm.backoff=0.001", "llm.timeout=5", f"limits.test_rows={ROWS}", "limits.dev_rows=2")
    return ("model=llm", "+suite=inli", "llm.model=org/model-1", f"llm.base_url={url}", *short, *more)


# A language model


def test_a_model_that_is_always_right(serve: Serve, run: Evaluate, tmp_path: Path) -> None:
    with serve(right) as server:
        done = run(*asks(server, "llm.price={input: 1.0, output: 10.0}"))
    record = done.read()
    shares = {"accuracy_four_way": 1.0, "refused": 0.0, "unparsable": 0.0, "failed": 0.0}
    accuracies = dict.fromkeys((*(f"accuracy_{kind}" for kind in HYPOTHESES), "accuracy_all"), 1.0)
    assert record["metrics"] == {f"test/rte/{name}": value for name, value in (accuracies | shares).items()}
    assert record["left_out"] == {"eis": ["implicitness"]}
    assert done.path == tmp_path / "runs" / "evaluate" / "llm" / "org_model-1" / "inli" / done.path.name
    assert (record["name"], record["encoder"]) == ("org/model-1", {"name": "org/model-1"})
    assert len(server.calls) == PAIRS
    account = record["account"]["rte"]
    assert (account["requests"], account["cached"], account["failed"]) == (PAIRS, 0, 0)
    sent = sum(len(m["content"].split()) for call in server.calls for m in call.body["messages"])
    assert account["prompt_tokens"] == sent
    assert account["cost"] == pytest.approx((sent + 10 * account["completion_tokens"]) / 1e6)
    assert account["cost_if_new"] == account["cost"]
    assert record["data"].keys() == {f"INLI/{split}.csv" for split in ("train", "val", "test")}
    assert record["task_data"]["rte"].keys() == {"INLI/val.csv", "INLI/test.csv"}


def test_metrics_of_a_model_that_errs_refuses_and_talks(serve: Serve, run: Evaluate) -> None:
    said = {
        (0, "explicit"): "Implied entailment",
        (1, "explicit"): "neutral",
        (0, "implied"): "I'm sorry, I can't say.",
        (0, "neutral"): "neutral or contradiction",
        (1, "neutral"): "contradiction",
    }

    def answer(body: dict[str, Any]) -> str:
        return said.get(kinds()[prompt(body)], right(body))

    def plan(body: dict[str, Any], nth: int) -> str | None:
        return {(0, "contradiction"): "refusal", (1, "contradiction"): "too_long"}.get(kinds()[prompt(body)])

    with serve(answer, plan) as server:
        done = run(*asks(server))
    metrics = {key.removeprefix("test/rte/"): value for key, value in done.read()["metrics"].items()}
    assert metrics == {
        "accuracy_explicit": 3 / 4,
        "accuracy_implied": 3 / 4,
        "accuracy_neutral": 3 / 4,
        "accuracy_contradiction": 2 / 4,
        "accuracy_all": 11 / 16,
        "accuracy_four_way": 9 / 16,
        "refused": 2 / 16,
        "unparsable": 1 / 16,
        "failed": 1 / 16,
    }
    predicted = pq.read_table(done.predictions / "rte.parquet").to_pydict()
    assert list(predicted) == ["row", "type", "label", "answer", "prediction", "correct"]
    assert Counter(predicted["answer"]) == {
        "explicit": 2,
        "implied": 4,
        "neutral": 3,
        "contradiction": 3,
        "refused": 2,
        "unparsable": 1,
        "failed": 1,
    }
    assert [predicted["prediction"][k] for k in range(PAIRS) if predicted["answer"][k] == "failed"] == [None]


def test_an_outage_is_no_result_and_the_same_command_asks_for_the_rest(
    serve: Serve, run: Evaluate, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    lost = set(list(kinds())[::2])
    price = "llm.price={input: 1.0, output: 10.0}"
    with serve(right, lambda body, nth: "empty" if prompt(body) in lost else None) as server, caplog.at_level("INFO"):
        with pytest.raises(LLMError) as caught:
            run(*asks(server, "llm.retries=0", "llm.concurrency=2", price))
        assert re.fullmatch(
            rf"8 of {PAIRS} questions have no reply: .+ \(8\); "
            "the replies that came are kept, the same command asks for the rest",
            str(caught.value),
        )
        assert not list(tmp_path.rglob("record.json"))
        assert f"{PAIRS} questions to org/model-1, 0 of them answered before: {PAIRS} calls" in caplog.text
        assert f"{PAIRS} questions, 0 answered before, 8 failed" in caplog.text, "what it took is reported all the same"
        server.plan = None
        before = len(server.calls)
        done = run(*asks(server, "llm.retries=0", price)).read()
        assert {prompt(call.body) for call in server.calls[before:]} == lost
        assert len(server.calls) == before + 8
    assert (done["metrics"]["test/rte/accuracy_all"], done["metrics"]["test/rte/failed"]) == (1, 0)
    assert "8 of them answered before: 8 calls" in caplog.text
    account = done["account"]["rte"]
    assert account["cached"] == PAIRS - 8
    sent, all_sent = account["prompt_tokens"], account["prompt_tokens"] + account["cached_prompt_tokens"]
    got, all_got = account["completion_tokens"], account["completion_tokens"] + account["cached_completion_tokens"]
    assert all_sent > sent > 0
    assert account["cost"] == pytest.approx((sent + 10 * got) / 1e6)
    assert account["cost_if_new"] == pytest.approx((all_sent + 10 * all_got) / 1e6)


def test_an_outage_where_no_reply_is_kept(serve: Serve, run: Evaluate) -> None:
    lost = next(iter(kinds()))
    with (
        serve(right, lambda body, nth: "error" if prompt(body) == lost else None) as server,
        pytest.raises(LLMError, match=r"^1 of 16 .*; paths\.cache_dir is null, so no reply is kept"),
    ):
        run(*asks(server, "llm.retries=0", "paths.cache_dir=null"))


def test_a_question_that_the_endpoint_rejects_is_wrong(
    serve: Serve, run: Evaluate, caplog: pytest.LogCaptureFixture
) -> None:
    lost = next(iter(kinds()))
    with serve(right, lambda body, nth: "too_long" if prompt(body) == lost else None) as server:
        done = run(*asks(server)).read()
    assert (done["metrics"]["test/rte/failed"], done["metrics"]["test/rte/accuracy_explicit"]) == (1 / PAIRS, 3 / 4)
    assert f"1 of {PAIRS} questions have no reply, and asking again brings none: status 400: This model" in caplog.text
    assert done["account"]["rte"]["cost"] is None


def test_parameters_are_sent_as_they_stand(serve: Serve, run: Evaluate, tmp_path: Path) -> None:
    with serve(right) as server:
        line = asks(server, "+llm.parameters.top_p=0.9", "llm.parameters.temperature=null")
        done = run(*line)
    index = RunsIndex(tmp_path / "runs")
    found = index.find(Point("evaluate", (*SAMPLE, *line, "llm.concurrency=3")), 0)
    assert found is not None
    assert found.folder == done.path
    for another in ("+llm.parameters.seed=1", "llm.parameters.temperature=0", "few_shot.shots=4", "llm.model=m"):
        assert index.find(Point("evaluate", (*SAMPLE, *line, another)), 0) is None
    assert done.read()["model"]["llm"] == {"model": "org/model-1", "parameters": {"top_p": 0.9, "max_tokens": 32}}
    assert done.read()["model"]["few_shot"] == {"shots": 8, "seed": 0}
    sent = [{key: value for key, value in call.body.items() if key != "messages"} for call in server.calls]
    assert sent == [{"model": "org/model-1", "top_p": 0.9, "max_tokens": 32}] * PAIRS


def test_a_stopped_evaluation_asks_nothing_twice(
    serve: Serve, run: Evaluate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    original = asking._spent

    def stopping(*given: Any) -> str:
        seen.append("reply")
        if len(seen) == 7:
            raise KeyboardInterrupt
        return original(*given)

    with serve(right) as server:
        with monkeypatch.context() as patched:
            patched.setattr(asking, "_spent", stopping)
            with pytest.raises(KeyboardInterrupt), caplog.at_level("INFO"):
                run(*asks(server, "llm.concurrency=1"))
        assert "7 questions, 0 answered before" in caplog.text, "an interrupt does not hide what was paid"
        assert len(server.calls) == 7
        done = run(*asks(server, "llm.concurrency=1"))
        assert len(server.calls) == PAIRS
        assert set(server.answered.values()) == {1}
    assert done.read()["metrics"]["test/rte/accuracy_all"] == 1
    assert done.read()["account"]["rte"]["cached"] == 7


def test_a_dead_endpoint_is_reported_once_and_does_not_stay(serve: Serve, run: Evaluate, tmp_path: Path) -> None:
    with serve(right) as server:
        pass  # and is gone
    with pytest.raises(LLMError, match=r"llm\.base_url"):
        run(*asks(server, "llm.retries=0"))
    (failed,) = (tmp_path / "runs").rglob("failed.json")
    assert '"stage": "rte"' in failed.read_text()
    with serve(right) as server:
        assert run(*asks(server)).path == failed.parent
    assert not failed.exists()


def test_the_key_is_in_no_file(serve: Serve, run: Evaluate, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serve(right, key=KEY) as server, caplog.at_level("DEBUG"):
        run(*asks(server))
        assert {call.authorization for call in server.calls} == {f"Bearer {KEY}"}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"record.json", "config.yaml", "rte.json", "rte.parquet", "replies.sqlite"} <= {path.name for path in files}
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert KEY not in caplog.text


def test_the_hash_is_of_what_decides_the_answers(serve: Serve, run: Evaluate) -> None:
    with serve(right) as server, serve(right) as other:
        first = run(*asks(server)).config_hash
        way = ("llm.concurrency=2", "llm.timeout=7", "llm.retries=1", "llm.price={input: 1, output: 1}")
        assert run(*asks(other, *way, "llm.key_variable=ANOTHER", "accelerator=cpu")).config_hash == first
        assert not other.calls, "it is finished"
        deciding = ("llm.model=m", "few_shot.shots=4", "few_shot.seed=1", "llm.parameters.temperature=1")
        seen = {run(*asks(server, one)).config_hash for one in (*deciding, "limits.test_rows=2")}
    assert len(seen | {first}) == 6


def test_without_a_folder_for_caches_nothing_is_kept(
    serve: Serve, run: Evaluate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(right) as server, caplog.at_level("INFO"):
        run(*asks(server, "paths.cache_dir=null", "few_shot.shots=0"))
    assert not list(tmp_path.rglob("*.sqlite"))
    assert "paths.cache_dir is null, so no reply is kept" in caplog.text


def test_its_record_is_compared_with_that_of_an_encoder(serve: Serve, run: Evaluate) -> None:
    with serve(right) as server:
        asked = run(*asks(server))
    encoder = run("model=tiny", "+suite=inli", f"limits.test_rows={ROWS}", "limits.dev_rows=2")
    given = significance.points([significance.read_run(folder.path) for folder in (asked, encoder)])
    (compared,) = significance.compare(given)
    assert (compared.task, compared.accuracy_a, compared.test.examples) == ("rte", 1.0, PAIRS)
    assert compared.accuracy_b == encoder.read()["metrics"]["test/rte/accuracy_all"]
    assert significance.compare_accuracy(*given, "test/rte/accuracy_neutral").examples == ROWS


# Mistakes


@pytest.mark.parametrize("given", ["pooling=cls", "prompt='{} {mask}'", "max_length=9", "whitening=[stsb/train]"])
def test_what_is_for_encoders_is_refused(given: str, run: Evaluate) -> None:
    with pytest.raises(ConfigError, match=f"{given.partition('=')[0]}: model=llm has no encoder; leave it out"):
        run("model=llm", "+suite=inli", "llm.model=m", given)


@pytest.mark.parametrize(
    "given",
    [
        "llm.base_url=localhost/v1",
        "llm.concurrency=0",
        "+llm.temperature=1",
        "+llm.retry=1",
        "llm.parameters.temperature=nan",
        "+llm.parameters.n=2",
        "llm.base_url=http://me:hush@localhost/v1",
    ],
)
def test_mistakes_of_an_endpoint_name_the_key(given: str, run: Evaluate, tmp_path: Path) -> None:
    key = given.lstrip("+").partition("=")[0]
    with pytest.raises(ConfigError, match=rf"(?m)^ *({re.escape(key)}|llm\.parameters): ") as caught:
        run("model=llm", "+suite=inli", "llm.model=m", given)
    assert "hush" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_suites_and_commands_that_do_not_fit(run: Evaluate) -> None:
    with pytest.raises(TaskError, match=r"no task of the suite suits m: LanguageModel does not answer what they ask"):
        run("model=llm", "+suite=stsb", "llm.model=m")
    with pytest.raises(EncoderError, match=r"model: llm has no encoder"):
        load_model("llm")
