"""Evaluation of a language model behind a local server."""

import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pyarrow.parquet as pq
import pytest
from llm_server import ChatServer, prompt

from lightning_cse.data import read_corpus
from lightning_cse.data.corpora import sample_dir
from lightning_cse.engine.load import load
from lightning_cse.errors import ConfigError, EncoderError, TaskError
from lightning_cse.evaluation.inli import HYPOTHESES
from lightning_cse.llm import LLMError
from lightning_cse.runs import Run

KEY = "sk-hush-0123456789abcdef"
NAMES = {
    kind: {"explicit": "explicit entailment", "implied": "implied entailment"}.get(kind, kind)
    for kind in HYPOTHESES
}
ROWS = 4
PAIRS = ROWS * len(HYPOTHESES)

Evaluate = Callable[..., Run]
Serve = Callable[..., ChatServer]


def kinds():
    """Row and type of every test pair, by what is asked about it."""
    rows = read_corpus(
        "inli",
        "test",
        sample_dir(),
    ).select(range(ROWS))
    return {
        f"Premise: {row['premise']}\nHypothesis: {row[column]}": (number, kind)
        for number, row in enumerate(rows)
        for kind, (column, _) in HYPOTHESES.items()
    }


def right(body):
    return NAMES[kinds()[prompt(body)][1]]


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ExitStack() as stack:
        yield lambda *arguments, **named: stack.enter_context(ChatServer(*arguments, **named))


def asks(server, *more):
    short = (
        "llm.retries=0",
        "llm.timeout=5",
        f"limits.test_rows={ROWS}",
        "limits.dev_rows=2",
    )
    return (
        "model=llm",
        "+suite=inli",
        "llm.model=org/model-1",
        f"llm.base_url={server.url}",
        *short,
        *more,
    )


def test_a_model_that_is_always_right(serve, run, tmp_path):
    with serve(right, key=KEY) as server:
        done = run(*asks(server, "llm.price={input: 1.0, output: 10.0}"))
    record = done.read()
    shares = {
        "accuracy_four_way": 1.0,
        "refused": 0.0,
        "unparsable": 0.0,
        "failed": 0.0,
    }
    accuracies = dict.fromkeys((*(f"accuracy_{kind}" for kind in HYPOTHESES), "accuracy_all"), 1.0)
    assert record["metrics"] == {
        f"test/rte/{name}": value for name, value in (accuracies | shares).items()
    }
    assert record["left_out"] == {"eis": ["implicitness"]}
    assert (
        done.path
        == tmp_path / "runs" / "evaluate" / "llm" / "org_model-1" / "inli" / done.path.name
    )
    assert (record["name"], record["encoder"]) == ("org/model-1", {"name": "org/model-1"})
    assert record["data"].keys() == {f"INLI/{split}.csv" for split in ("train", "val", "test")}
    account = record["account"]["rte"]
    assert (
        (account["requests"], account["cached"], account["failed"])
        == (len(server.calls), 0, 0)
        == (PAIRS, 0, 0)
    )
    sent = sum(len(m["content"].split()) for call in server.calls for m in call.body["messages"])
    assert account["prompt_tokens"] == sent
    assert account["cost"] == account["cost_if_new"]
    assert account["cost"] == pytest.approx((sent + 10 * account["completion_tokens"]) / 1e6)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {
        "record.json",
        "config.yaml",
        "rte.json",
        "rte.parquet",
        "replies.sqlite",
    } <= {path.name for path in files}
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_metrics_of_a_model_that_errs_refuses_and_talks(serve, run, caplog):
    said = {
        (0, "explicit"): "Implied entailment",
        (1, "explicit"): "neutral",
        (0, "implied"): "I'm sorry, I can't say.",
        (0, "neutral"): "neutral or contradiction",
        (1, "neutral"): "contradiction",
    }
    faults = {(0, "contradiction"): "refusal", (1, "contradiction"): "too_long"}
    with serve(
        lambda body: said.get(kinds()[prompt(body)], right(body)),
        lambda body, _: faults.get(kinds()[prompt(body)]),
    ) as server:
        done = run(*asks(server))
    assert {
        key.removeprefix("test/rte/"): value for key, value in done.read()["metrics"].items()
    } == {
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
    assert list(predicted) == [
        "row",
        "type",
        "label",
        "answer",
        "prediction",
        "correct",
        "correct_four_way",
    ]
    counts = {
        "explicit": 2,
        "implied": 4,
        "neutral": 3,
        "contradiction": 3,
        "refused": 2,
        "unparsable": 1,
        "failed": 1,
    }
    assert Counter(predicted["answer"]) == counts
    assert [
        predicted["prediction"][k] for k in range(PAIRS) if predicted["answer"][k] == "failed"
    ] == [None]
    assert "1 questions get no reply: status 400: This model's maximum context" in caplog.text


def test_after_an_outage_the_same_command_asks_for_the_rest(serve, run, caplog, tmp_path):
    lost = set(list(kinds())[::2])
    price = "llm.price={input: 1.0, output: 10.0}"
    with (
        serve(right, lambda body, nth: "empty" if prompt(body) in lost else None) as server,
        caplog.at_level("INFO"),
    ):
        for more, rest in (
            ("paths.cache_dir=null", "asks for all"),
            (price, "asks for the missing"),
        ):
            with pytest.raises(
                LLMError, match=rf"^8 questions have no reply: .+ \(8\). The same command {rest}"
            ):
                run(
                    *asks(
                        server,
                        "llm.concurrency=2",
                        more,
                    )
                )
            assert f"{PAIRS} questions, 0 replies from the cache, 8 failed" in caplog.text, (
                "what it took is reported"
            )
            assert '"stage": "rte"' in next((tmp_path / "runs").rglob("failed.json")).read_text()
            assert not list(tmp_path.rglob("record.json"))
        server.plan, before = None, len(server.calls)
        done = run(*asks(server, price)).read()
    assert sorted(prompt(call.body) for call in server.calls[before:]) == sorted(lost)
    assert (done["metrics"]["test/rte/accuracy_all"], done["metrics"]["test/rte/failed"]) == (1, 0)
    assert f"{PAIRS} questions to org/model-1: 8 calls" in caplog.text
    account = done["account"]["rte"]
    assert account["cached"] == PAIRS - 8
    sent, all_sent = (
        account["prompt_tokens"],
        account["prompt_tokens"] + account["cached_prompt_tokens"],
    )
    got, all_got = (
        account["completion_tokens"],
        account["completion_tokens"] + account["cached_completion_tokens"],
    )
    assert all_sent > sent > 0
    assert account["cost"] == pytest.approx((sent + 10 * got) / 1e6)
    assert account["cost_if_new"] == pytest.approx((all_sent + 10 * all_got) / 1e6)


def test_parameters_are_sent_and_decide_the_hash(serve, run):
    with serve(right) as server, serve(right) as other:
        done = run(
            *asks(
                server,
                "+llm.parameters.top_p=0.9",
                "llm.parameters.temperature=null",
            )
        )
        sent = [
            {key: value for key, value in call.body.items() if key != "messages"}
            for call in server.calls
        ]
        assert (
            sent
            == [
                {
                    "model": "org/model-1",
                    "top_p": 0.9,
                    "max_tokens": 32,
                }
            ]
            * PAIRS
        )
        assert done.read()["model"]["llm"] == {
            "model": "org/model-1",
            "parameters": {"top_p": 0.9, "max_tokens": 32},
        }
        assert done.read()["model"]["few_shot"] == {"shots": 8, "seed": 0}
        first = run(*asks(server)).config_hash
        way = (
            "llm.concurrency=2",
            "llm.timeout=7",
            "llm.retries=1",
            "llm.price={input: 1, output: 1}",
        )
        assert (
            run(
                *asks(
                    other,
                    *way,
                    "llm.key_variable=ANOTHER",
                    "accelerator=cpu",
                )
            ).config_hash
            == first
        )
        assert not other.calls, "it is finished"
        deciding = (
            "llm.model=m",
            "few_shot.shots=4",
            "few_shot.seed=1",
            "llm.parameters.temperature=1",
        )
        seen = {run(*asks(server, one)).config_hash for one in (*deciding, "limits.test_rows=2")}
    assert len(seen | {first, done.config_hash}) == 7


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("pooling=cls", "pooling: model=llm has no encoder"),
        ("prompt='{} {mask}'", "prompt: model=llm has no encoder"),
        ("max_length=9", "max_length: model=llm has no encoder"),
        ("whitening=[stsb/train]", "whitening: model=llm has no encoder"),
        ("llm.base_url=http://me:hush@localhost/v1", "llm.base_url: "),
        ("llm.concurrency=0", "llm.concurrency: "),
        ("+llm.temperature=1", "llm.temperature: "),
        ("+llm.retry=1", "llm.retry: unknown setting - did you mean 'retries'"),
    ],
)
def test_a_mistake_names_its_key(given, key, run, tmp_path):
    with pytest.raises(ConfigError, match=rf"(?m)^ *{re.escape(key)}") as caught:
        run(
            "model=llm",
            "+suite=inli",
            "llm.model=m",
            given,
        )
    assert "hush" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_suites_and_commands_that_do_not_fit(run):
    with pytest.raises(
        TaskError, match=r"no task of the suite suits m: LanguageModel does not give what they need"
    ):
        run(
            "model=llm",
            "+suite=stsb",
            "llm.model=m",
        )
    with pytest.raises(EncoderError, match=r"model: llm has no encoder"):
        load("llm")
