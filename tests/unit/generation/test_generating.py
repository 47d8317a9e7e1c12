"""From a config to rows that a language model wrote: in their order, continued, counted, and
trained on.
"""

import json
import re
import shlex
import shutil
import time
from collections import Counter

import pytest
from llm_server import prompt

from lightning_cse.config import check as config_check
from lightning_cse.config.compose import compose_run
from lightning_cse.config.launch import ordered
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.generation.summary import shown_prompts
from lightning_cse.llm import LLMError

ROLES = ("positive", "intermediate", "negative")
REFUSAL = "I'm sorry, but I can't help with that."


def role(body):
    """The role that a request is for, by what the prompts say of it."""
    system = body["messages"][0]["content"]
    if "fewer details" in system:
        return "intermediate"

    return "positive" if re.search("means the same|premise entails", system) else "negative"


def answer(body):
    words = prompt(body).rstrip(".").split()
    sentences = {
        "positive": [*words[1:], "so", "it", "is"],
        "intermediate": words[: len(words) // 2],
        "negative": ["Nothing", "of", "the", "kind:", *reversed(words[:4])],
    }
    return " ".join(sentences[role(body)]) + "."


@pytest.fixture
def serve(serve):
    return lambda answer=answer, **named: serve(answer, **named)


def own(path, numbers):
    sentences = [f"Sentence number {number} of this file is short.\n" for number in numbers]
    path.write_text("".join(sentences))
    return str(path)


@pytest.mark.parametrize("reference", ["positive", "source"])
def test_rows_in_the_order_of_drawing(serve, generation, reference, lines):
    def slow(body):
        time.sleep(0.05 * (prompt(body) == writing.sentences[0]))  # the first comes last
        return json.dumps({"sentence": answer(body)})

    server = serve(slow)
    writing = generation(server, f"pattern.reference={reference}")
    provenance = writing.write()
    rows = lines(writing.rows)

    assert [row["anchor"] for row in rows] == writing.sentences[:6]
    assert [list(row) for row in rows] == [["anchor", *ROLES]] * 6

    expected = set()
    for row in rows:
        reference_text = row["anchor" if reference == "source" else "positive"]
        expected |= {
            ("positive", row["anchor"]),
            ("intermediate", reference_text),
            ("negative", reference_text),
        }

    assert {(role(call.body), prompt(call.body)) for call in server.calls} == expected
    assert "json_schema" in server.calls[0].body["response_format"]
    assert writing.given_up.read_text() == ""
    assert provenance["rows"]["count"] == 6
    assert provenance["served"] == {"m": 18}
    assert provenance["acceptance"]["sources"] == {"complete": 6, "given_up": 0}

    assert generation(server, f"pattern.reference={reference}").write() == provenance
    assert len(server.calls) == 18


def test_rejected_reply_is_sampled_again(serve, generation):
    def echoes_first(body):
        return prompt(body) if body["seed"] == 7 and role(body) == "intermediate" else answer(body)

    server = serve(echoes_first)
    line = (server, "+llm.parameters.seed=7", "llm.price={input: 2, output: 4}")
    writing = generation(*line)
    provenance = writing.write()
    counts = provenance["acceptance"]["roles"]["intermediate"]

    assert counts == {"asked": 12, "accepted": 6, "rejected": {"echo of the source": 6}}

    seeds = Counter((role(call.body), call.body["seed"]) for call in server.calls)
    expected = [("positive", 7), ("intermediate", 7), ("intermediate", 8), ("negative", 7)]

    assert seeds == dict.fromkeys(expected, 6)

    writing.rows.unlink()

    assert generation(*line).write()["cost"] == provenance["cost"] > 0
    assert len(server.calls) == 24  # rejected replies are kept too


def test_given_up_sentences_are_listed_and_replaced(serve, generation, lines):
    bad = set(generation(None).sentences[:8:3])

    def refuses(body):
        return REFUSAL if prompt(body) in bad else answer(body)

    for concurrency in (1, 5):
        overrides = (f"llm.concurrency={concurrency}", f"llm.model=m{concurrency}")
        writing = generation(serve(refuses), "samples=2", *overrides)
        provenance = writing.write()
        good = [sentence for sentence in writing.sentences[:9] if sentence not in bad]
        rejected = {"role": "positive", "reason": "refused", "text": REFUSAL}

        assert [row["anchor"] for row in lines(writing.rows)] == good
        assert lines(writing.given_up) == [
            {"anchor": writing.sentences[index], "rejected": [rejected] * 2} for index in (0, 3, 6)
        ]
        assert provenance["acceptance"]["sources"] == {"complete": 6, "given_up": 3}


@pytest.mark.slow
def test_dead_endpoint_loses_no_reply(serve, generation, lines):
    uninterrupted = generation(serve(), "llm.model=other")
    uninterrupted.write()
    server = serve(seconds=0.005)
    server.plan = lambda body, _: "error" if sum(server.answered.values()) >= 7 else None
    first = generation(server, "llm.retries=0", "llm.concurrency=2")

    with pytest.raises(LLMError, match=r"\d of 6 sentences have no reply: .*500.*\d have a row"):
        first.write()

    assert not first.rows.exists()

    server.plan = None
    second = generation(server, "llm.concurrency=5")

    assert second.run.path == first.run.path

    second.write()

    assert sum(server.answered.values()) == 18  # each exactly once
    assert lines(second.rows) == lines(uninterrupted.rows)


@pytest.mark.parametrize("harm", ["shorter", "nothing left"])
def test_changed_rows_are_written_again(serve, generation, harm):
    server = serve()
    writing = generation(server)
    provenance, content = writing.write(), writing.rows.read_bytes()

    if harm == "nothing left":
        shutil.rmtree(writing.run.path)
    else:
        writing.rows.write_bytes(content[:-5])

    rewritten = generation(server).write()

    assert writing.rows.read_bytes() == content
    assert rewritten["acceptance"] == provenance["acceptance"]
    assert len(server.calls) == 18


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("llm.concurrency=3", True),
        ("llm.base_url=http://localhost:2/v1", True),
        ("seed=1", False),
        ("n=5", False),
        ("samples=2", False),
        ("llm.model=another", False),
        ("llm.parameters.temperature=0.5", False),
        ("most_words=20", False),
        ("pattern.reference=source", False),
        ("pattern.roles.0.checks=null", False),
    ],
)
def test_folder_depends_on_decisive_settings(generation, override, same):
    assert (generation(None, override).run.path == generation(None).run.path) == same


def test_draw_depends_on_seed_and_sentences_only(generation, tmp_path):
    corpus = own(tmp_path / "own.txt", range(1000))
    halves = [own(tmp_path / "b.txt", range(500, 1000)), own(tmp_path / "a.txt", range(500))]
    writing = generation(None, f"data.train=[{corpus}]", "n=100")
    other_seed = generation(None, f"data.train=[{corpus}]", "n=100", "seed=1")

    common = set(other_seed.sentences[:100]).intersection(writing.sentences[:100])

    assert 1 <= len(common) <= 25  # ten or so of a hundred
    assert (
        generation(None, f"data.train=[{','.join(halves)}]", "n=100").run.path == writing.run.path
    )


def test_patience_limits_the_cost_of_a_fault(serve, generation):
    server = serve(lambda body: "")
    overrides = ("n=2", "samples=1", "llm.concurrency=4", "patience=20")
    with pytest.raises(
        LLMError, match=r"21 of 21 sentences were given up; .* positive was rejected \(empty\): ''"
    ):
        generation(server, *overrides).write()

    assert 21 <= len(server.calls) <= 25


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["llm.model=null"], "llm.model: "),
        (["pattern.reference=positve"], "must be one of ['source', 'positive']"),
        (["paths.cache_dir=null"], "paths.cache_dir: must be a folder"),
        (["data=ngcse_wiki_sts"], "data: already has LLM rows; choose the data of its sentences"),
        (["n=1000000"], "n: must be at most"),
        (["pattern.cosine.negative={below: 0.6}"], "checks_encoder: must name an encoder"),
        (["checks_encoder=tiny"], "checks_encoder: no role has bounds of the cosine"),
        (
            ["pattern.cosine.negative={under: 0.6}", "checks_encoder=tiny"],
            "pattern.roles.2.checks.cosine.under",
        ),
    ],
)
def test_faults(generation, overrides, fault):
    with pytest.raises((ConfigError, DataError), match=re.escape(fault)):
        generation(None, *overrides)


def test_negatives_of_the_same_meaning_are_rejected(serve, generation, lines):
    close = {}

    def answer_or_echo(body):
        if role(body) != "negative":
            return answer(body)

        # At first, the negative is the source with one more word.
        sentence = prompt(body)
        close[sentence] = close.get(sentence, 0) + 1
        return f"Yes, {sentence}" if close[sentence] == 1 else answer(body)

    bounds = ("pattern.cosine.negative={below: 0.9}", "checks_encoder=minilm_l6")
    writing = generation(serve(answer_or_echo), "pattern.reference=source", *bounds)
    provenance = writing.write()
    negative = provenance["acceptance"]["roles"]["negative"]

    assert negative["rejected"] == {"too close in meaning": 6}
    assert all(row["negative"].startswith("Nothing of the kind") for row in lines(writing.rows))
    assert writing.run.path != generation(None, "pattern.reference=source").run.path


@pytest.mark.parametrize(
    ("data", "pattern", "calls", "command"),
    [
        ("nli", "nli", 12, "ngcse_nli_nli corpora.nli_train data.watched_in corpora.llm_nli_nli"),
        (
            "file",
            "sts",
            18,
            "ngcse_wiki_sts_ht corpora.ngcse_wiki data.watched_in corpora.llm_wiki_sts",
        ),
        ("stsb_pairs", "dino", 18, "dino data.train"),
        ("stsb_pairs", "claif", 108, "claif data.train"),
        ("nli", "clhaif", 6, "clhaif data.train"),
    ],
)
def test_shown_prompts_and_the_training_command(generation, data, pattern, calls, command):
    train = ["data.train=wiki_split/dev"] if data == "file" else []
    writing = generation(
        None, f"+pattern={pattern}", "llm.model=null", "show_prompts=true", *train, data=data
    )
    printed = "\n".join(shown_prompts(writing.writer, writing.sentences[: writing.wanted]))
    assert f"calls: {calls}," in printed
    texts = [writing.sentences[0], *(role.system for role in writing.pattern.roles)]
    assert all(text in printed for text in texts)

    words = shlex.split("".join(writing.conclusion()).splitlines()[-1])
    experiment, *keys = command.split()
    assert words[:4] == ["python", "-m", "lightning_cse.train", f"+experiment={experiment}"]
    assert words[4:6] == ["corpora=sample", "paths=sample"]
    assert [word.partition("=")[0] for word in words[6:]] == keys
    assert words[-1].endswith(f"=[{writing.rows}]")

    config_check.check(compose_run("train", ordered(words[3:])), "train")


@pytest.mark.slow
def test_training_record_has_the_provenance_of_rows(serve, generation, run_tiny, tmp_path):
    sentences = own(tmp_path / "own.txt", range(40))
    writing = generation(serve(), f"data.train=[{sentences}]", "n=35")
    writing.write()
    command = shlex.split("".join(writing.conclusion()).splitlines()[-1])
    record = run_tiny(tmp_path, *command[3:]).read()
    (provenance,) = record["provenance"].values()

    assert (provenance["model"], provenance["unchanged"]) == ("m", True)
    assert provenance["rows"]["count"] == 35
    assert record["rows"]["training_rows"] == 40 - record["rows"]["dropped: held out"] == 36
