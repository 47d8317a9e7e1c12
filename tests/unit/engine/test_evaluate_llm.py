"""Evaluation of a language model behind a local server."""

import re
from collections import Counter

import pyarrow.parquet as pq
import pytest
from llm_server import KEY, prompt

from lightning_cse.data import read_corpus
from lightning_cse.data.declarations import sample_dir
from lightning_cse.errors import ConfigError, TaskError
from lightning_cse.evaluation.inli import HYPOTHESES
from lightning_cse.llm import LLMError

NAMES = {
    label: {"explicit": "explicit entailment", "implied": "implied entailment"}.get(label, label)
    for label in HYPOTHESES
}
ROWS = 4
PAIRS = ROWS * len(HYPOTHESES)


def kinds():
    """Row and type of every test pair, by what is asked about it."""
    labels = {}
    for number, row in enumerate(read_corpus("inli", "test", sample_dir()).select(range(ROWS))):
        for label, (column, _) in HYPOTHESES.items():
            labels[f"Premise: {row['premise']}\nHypothesis: {row[column]}"] = (number, label)

    return labels


def right(body):
    return NAMES[kinds()[prompt(body)][1]]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def asks(server, *more):
    model = ("model=llm", "+suite=inli", "llm.model=org/model-1", f"llm.base_url={server.url}")
    short = ("llm.retries=0", "llm.timeout=5", f"limits.test_rows={ROWS}", "limits.dev_rows=2")
    return (*model, *short, *more)


def test_a_model_that_is_always_right(serve, run, tmp_path):
    server = serve(right, key=KEY)
    result = run(*asks(server, "llm.price={input: 1.0, output: 10.0}"))
    record = result.read()
    accuracies = [
        *(f"accuracy_{label}" for label in HYPOTHESES),
        "accuracy_all",
        "accuracy_four_way",
    ]
    metrics = dict.fromkeys(accuracies, 1.0) | dict.fromkeys(
        ["refused", "unparsable", "failed"], 0.0
    )
    assert record["metrics"] == {f"test/rte/{name}": value for name, value in metrics.items()}
    reason = "it needs implicitness, which LanguageModel does not give"
    assert record["left_out"] == {"eis": reason}
    assert result.path.is_relative_to(
        tmp_path / "runs" / "evaluate" / "llm" / "org_model-1" / "inli"
    )
    assert record["name"] == record["encoder"]["name"] == "org/model-1"
    account = record["account"]["rte"]
    assert (account["requests"], account["cached"], account["failed"]) == (PAIRS, 0, 0)
    assert len(server.calls) == PAIRS
    sent = sum(len(m["content"].split()) for call in server.calls for m in call.body["messages"])
    assert account["prompt_tokens"] == sent
    assert account["cost"] == pytest.approx((sent + 10 * account["completion_tokens"]) / 1e6)


def test_metrics_of_a_model_that_errs_refuses_and_talks(serve, run, caplog):
    replies = {
        (0, "explicit"): "Implied entailment",
        (1, "explicit"): "neutral",
        (0, "implied"): "I'm sorry, I can't say.",
        (0, "neutral"): "neutral or contradiction",
        (1, "neutral"): "contradiction",
    }
    faults = {(0, "contradiction"): "refusal", (1, "contradiction"): "too_long"}
    server = serve(
        lambda body: replies.get(kinds()[prompt(body)], right(body)),
        lambda body, _: faults.get(kinds()[prompt(body)]),
    )
    result = run(*asks(server))
    metrics = result.read()["metrics"]
    assert {key.removeprefix("test/rte/"): value for key, value in metrics.items()} == {
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
    answers = pq.read_table(result.predictions / "rte.parquet").to_pydict()["answer"]
    counts = {"explicit": 2, "implied": 4, "neutral": 3, "contradiction": 3}
    assert Counter(answers) == counts | {"refused": 2, "unparsable": 1, "failed": 1}
    assert "1 questions have no reply: status 400: " in caplog.text


def test_after_an_outage_the_same_command_asks_for_the_rest(serve, run, tmp_path):
    lost = set(list(kinds())[::2])
    server = serve(right, lambda body, nth: "empty" if prompt(body) in lost else None)
    price = "llm.price={input: 1.0, output: 10.0}"
    with pytest.raises(LLMError, match=r"^8 questions have no reply: .+ \(8\). The same command"):
        run(*asks(server, price))

    assert '"stage": "rte"' in next((tmp_path / "runs").rglob("failed.json")).read_text()
    assert not list(tmp_path.rglob("record.json"))
    server.plan, before = None, len(server.calls)
    record = run(*asks(server, price)).read()
    assert sorted(prompt(call.body) for call in server.calls[before:]) == sorted(lost)
    assert (record["metrics"]["test/rte/accuracy_all"], record["metrics"]["test/rte/failed"]) == (
        1,
        0,
    )
    assert record["account"]["rte"]["cached"] == PAIRS - 8


def test_parameters_are_sent_and_decide_the_hash(serve, run):
    server, unused = serve(right), serve(right)
    result = run(*asks(server, "+llm.parameters.top_p=0.9", "llm.parameters.temperature=null"))
    parameters = {"top_p": 0.9, "max_tokens": 32}
    assert server.calls[0].body["top_p"] == 0.9
    assert "temperature" not in server.calls[0].body
    model = result.read()["model"]
    assert model["llm"] == {"model": "org/model-1", "parameters": parameters}
    assert model["few_shot"] == {"shots": 8, "seed": 0}
    first = run(*asks(server)).config_hash
    neutral = ("llm.concurrency=2", "llm.timeout=7", "llm.key_variable=ANOTHER", "accelerator=cpu")
    assert run(*asks(unused, *neutral)).config_hash == first
    assert not unused.calls, "it is finished"
    deciding = ("llm.model=m", "few_shot.shots=4", "few_shot.seed=1")
    hashes = {run(*asks(server, override)).config_hash for override in deciding}
    assert len(hashes | {first, result.config_hash}) == 5


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("pooling=cls", "pooling: model=llm has no encoder"),
        ("whitening=[stsb/train]", "whitening: model=llm has no encoder"),
        ("llm.base_url=http://:hush@localhost/v1", "llm.base_url: "),
        ("+llm.retry=1", "llm.retry: unknown setting - did you mean 'retries'"),
        ("paths.cache_dir=null", "paths.cache_dir: must be a folder"),
    ],
)
def test_a_mistake_names_its_key(override, key, run, tmp_path):
    with pytest.raises(ConfigError, match=rf"(?m)^ *{re.escape(key)}") as caught:
        run("model=llm", "+suite=inli", "llm.model=m", override)

    assert "hush" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_suite_that_does_not_fit(run):
    with pytest.raises(TaskError, match="no task of the suite suits m: "):
        run("model=llm", "+suite=stsb", "llm.model=m")
