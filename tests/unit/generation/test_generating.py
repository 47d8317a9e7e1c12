"""From a config to rows that a language model wrote: in their order, continued, counted, and
trained on.
"""

import io
import json
import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from llm_server import ChatServer, prompt
from rich.console import Console

from lightning_cse.config import check as config_check
from lightning_cse.config import conf_dir
from lightning_cse.config.compose import compose, register
from lightning_cse.config.launch import ordered
from lightning_cse.data import Sentences, sample_dir
from lightning_cse.data.drawing import hold_out
from lightning_cse.data.sources import read_sources
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.generation.generating import Generation, check
from lightning_cse.generation.summary import print_prompts
from lightning_cse.llm import LLMError
from lightning_cse.runs import Busy, locked

Serve = Callable[..., ChatServer]
Generate = Callable[..., Generation]

ROLES = ("positive", "intermediate", "negative")


def role(body):
    """The role that a request is for, by what the prompts say of it."""
    known = {
        "fewer details": "intermediate",
        "means the same": "positive",
        "premise entails": "positive",
    }

    return next(
        (role for words, role in known.items() if words in body["messages"][0]["content"]),
        "negative",
    )


def answer(body):
    words = prompt(body).rstrip(".").split()
    return {
        "positive": " ".join(
            [
                *words[1:],
                "so",
                "it",
                "is",
            ]
        )
        + ".",
        "intermediate": " ".join(words[: len(words) // 2]) + ".",
        "negative": "Nothing of the kind: " + " ".join(reversed(words[:4])) + ".",
    }[role(body)]


@pytest.fixture
def serve():
    with ExitStack() as stack:
        yield lambda *arguments, **named: stack.enter_context(
            ChatServer(*(arguments or (answer,)), **named)
        )


@pytest.fixture
def generation(tmp_path):
    """What is to be generated for the sample corpus; runs and caches of a test are in its
    folder.
    """

    def made(server, *overrides, data="wiki"):
        line = ["n=6", "encoder=tiny", "corpora=sample", "+pattern=sts", "paths=sample"]
        line += [
            f"paths.runs_dir={tmp_path}/runs",
            f"paths.cache_dir={tmp_path}/cache",
            f"data={data}",
        ]
        line += [f"llm.base_url={server.url}", "llm.model=m"] if server else []
        again = {override.lstrip("+").partition("=")[0] for override in overrides}
        line = [
            *(one for one in line if one.lstrip("+").partition("=")[0] not in again),
            *overrides,
        ]
        register()
        GlobalHydra.instance().clear()

        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            cfg = hydra_compose("generate", ordered(line))

        check(cfg)
        return Generation(
            cfg,
            data,
            line,
        )

    return made


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def own(folder, count):
    path = folder / "own.txt"
    path.write_text(
        "".join(f"Sentence number {number} of this file is short.\n" for number in range(count))
    )

    return f"data.train=[{path}]"


@pytest.mark.parametrize("reference", ["positive", "source"])
def test_rows_in_the_order_of_drawing(serve, generation, reference):
    def slow(body):
        time.sleep(0.05 * (prompt(body) == made.sentences[0]))  # the first comes last
        return answer(body)

    server = serve(slow)
    made = generation(server, f"pattern.reference={reference}")
    provenance = made.run()
    rows = lines(made.rows)

    assert [row["anchor"] for row in rows] == made.sentences[:6]
    assert [list(row) for row in rows] == [["anchor", *ROLES]] * 6

    given = {row["anchor"]: row["anchor" if reference == "source" else "positive"] for row in rows}
    asked = {(role(call.body), prompt(call.body)) for call in server.calls}

    expected = {("positive", anchor) for anchor in given}

    for written_role in ROLES[1:]:
        expected |= {(written_role, sentence) for sentence in given.values()}

    assert asked == expected
    assert made.given_up.read_text() == ""
    assert provenance["rows"]["count"] == 6
    assert provenance["served"] == {"m": 18}
    assert provenance["acceptance"]["sources"] == {"complete": 6, "given_up": 0}

    assert generation(server, f"pattern.reference={reference}").run() == provenance
    assert len(server.calls) == 18


def test_structured_replies(serve, generation):
    plain = generation(serve())
    plain.run()
    server = serve(lambda body: json.dumps({"sentence": answer(body)}))
    made = generation(server, "llm.model=other")
    made.run()

    assert lines(made.rows) == lines(plain.rows)

    schema = server.calls[0].body["response_format"]["json_schema"]["schema"]

    assert schema["properties"] == {"sentence": {"type": "string"}}


def test_rejected_reply_is_sampled_again(serve, generation):
    def echoes_first(body):
        return prompt(body) if body["seed"] == 7 and role(body) == "intermediate" else answer(body)

    server = serve(echoes_first)
    made = generation(
        server,
        "+llm.parameters.seed=7",
        "llm.price={input: 2, output: 4}",
    )
    provenance = made.run()
    tokens = provenance["tokens"]
    cost = (2 * tokens["prompt"] + 4 * tokens["completion"]) / 1e6

    assert provenance["cost"] == pytest.approx(cost)

    roles = provenance["acceptance"]["roles"]

    assert roles["intermediate"] == {
        "asked": 12,
        "accepted": 6,
        "rejected": {"echo of the source": 6},
    }

    seeds = Counter((role(call.body), call.body["seed"]) for call in server.calls)

    assert seeds == {
        ("positive", 7): 6,
        ("intermediate", 7): 6,
        ("intermediate", 8): 6,
        ("negative", 7): 6,
    }

    made.rows.unlink()
    made.run()

    assert len(server.calls) == 24  # rejected replies are kept too


def test_given_up_sentences_are_listed_and_replaced(serve, generation):
    bad = set(generation(None, "show_prompts=true").sentences[:8:3])

    def refuses(body):
        return "I'm sorry, but I can't help with that." if prompt(body) in bad else answer(body)

    found = []
    for concurrency in (1, 5):
        made = generation(
            serve(refuses),
            "samples=2",
            f"llm.concurrency={concurrency}",
            f"llm.model=m{concurrency}",
        )
        provenance = made.run()

        assert [row["anchor"] for row in lines(made.rows)] == [
            s for s in made.sentences[:9] if s not in bad
        ]

        found.append([(one["anchor"], one["rejected"]) for one in lines(made.given_up)])

        assert provenance["acceptance"]["sources"] == {"complete": 6, "given_up": 3}

    rejected = {
        "role": "positive",
        "reason": "refused",
        "text": "I'm sorry, but I can't help with that.",
    }

    assert found == [[(made.sentences[place], [rejected] * 2) for place in (0, 3, 6)]] * 2


def test_dead_endpoint_loses_no_reply(serve, generation):
    whole = generation(serve(), "llm.model=other")
    whole.run()
    server = serve(seconds=0.005)
    server.plan = lambda body, _: "error" if sum(server.answered.values()) >= 7 else None
    first = generation(
        server,
        "llm.retries=0",
        "llm.concurrency=2",
    )

    with pytest.raises(
        LLMError,
        match=r"\d of 6 sentences have no reply: .*500.*\d have a row",
    ):
        first.run()

    assert not first.rows.exists()

    answered = server.answered.copy()
    server.plan = None
    second = generation(server, "llm.concurrency=5")

    assert second.folder == first.folder

    second.run()

    assert sum(server.answered.values()) == 18  # each exactly once
    assert answered <= server.answered
    assert lines(second.rows) == lines(whole.rows)


@pytest.mark.parametrize("harm", ["shorter", "damaged side file", "nothing left"])
def test_changed_rows_are_written_again(serve, generation, harm):
    server = serve()
    made = generation(server)
    provenance, content = made.run(), made.rows.read_bytes()
    side = made.rows.with_name(f"{made.name}.provenance.json")

    if harm == "nothing left":
        shutil.rmtree(made.folder)
    elif harm == "shorter":
        made.rows.write_bytes(content[:-5])
    else:
        side.write_bytes(content[:-5])

    again = generation(server).run()

    assert made.rows.read_bytes() == content
    assert (again["acceptance"], again["tokens"]) == (
        provenance["acceptance"],
        provenance["tokens"],
    )
    assert len(server.calls) == 18


@pytest.mark.parametrize(
    ("same", "overrides"),
    [
        (
            True,
            [
                "llm.concurrency=3",
                "llm.price={input: 1, output: 1}",
                "llm.base_url=http://localhost:1/v1",
            ],
        ),
        (
            False,
            [
                "seed=1",
                "n=5",
                "samples=2",
                "llm.model=another",
                "llm.parameters.temperature=0.5",
                "most_words=20",
            ],
        ),
        (
            False,
            [
                "+llm.parameters.top_p=0.5",
                "pattern.reference=source",
                "pattern.seed=1",
                "pattern.roles.0.checks=null",
            ],
        ),
    ],
)
def test_folder_depends_on_decisive_settings(generation, same, overrides):
    folder = generation(None, "llm.model=m").folder
    for override in overrides:
        line = [override] if override.startswith("llm.model") else ["llm.model=m", override]
        assert (generation(None, *line).folder == folder) is same, override


def test_draw_is_independent_of_files_and_hold_out(generation, tmp_path):
    given = ("llm.model=m", "n=100")
    made = generation(
        None,
        *given,
        own(tmp_path, 1000),
    )
    path = tmp_path / "own.txt"
    _, apart = hold_out(
        Sentences()(
            read_sources(
                [str(path)],
                tmp_path,
                key="x",
            )
        ),
        0.1,
        of="anchor",
    )
    other = generation(
        None,
        *given,
        f"data.train=[{path}]",
        "seed=1",
    )

    for drawn in (apart.column("anchor"), other.sentences[:100]):
        assert (
            1 <= len(set(drawn).intersection(made.sentences[:100])) <= 25
        )  # ten or so of a hundred

    halves = path.read_text().splitlines(keepends=True)
    for name, half in (("a", halves[500:]), ("b", halves[:500])):
        (tmp_path / f"{name}.txt").write_text("".join(half))

    assert (
        generation(
            None,
            *given,
            f"data.train=[{tmp_path}/a.txt,{tmp_path}/b.txt]",
        ).folder
        == made.folder
    )


def test_patience_limits_the_cost_of_a_fault(serve, generation):
    server = serve(lambda body: "")
    with pytest.raises(
        LLMError, match=r"21 of 21 sentences were given up; .* positive was rejected \(empty\): ''"
    ):
        generation(
            server,
            "n=2",
            "samples=1",
            "llm.concurrency=4",
            "patience=20",
        ).run()

    assert 21 <= len(server.calls) <= 25


def test_one_process_per_folder(serve, generation, tmp_path):
    made = generation(serve())
    with locked(made.folder / "run.lock", "x"), pytest.raises(Busy):
        made.run()

    with pytest.raises(
        DataError, match=r"n: must be at most 2, the sentences of data=wiki, or null for all; got 3"
    ):
        generation(
            serve(),
            own(tmp_path, 2),
            "n=3",
        )


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["llm.model=null"], "llm.model: "),
        (
            ["pattern.reference=positve"],
            "pattern: Value error, roles.1.reference: must be one of ['source', 'positive'], got",
        ),
        (["paths.cache_dir=null"], "paths.cache_dir: must be a folder"),
        (["data=ngcse_wiki_sts"], "data: already has LLM rows; choose the data of its sentences"),
    ],
)
def test_faults(generation, overrides, fault):
    data = overrides[0].partition("data=")[2] or "wiki"
    with pytest.raises(ConfigError) as caught:
        generation(
            None,
            *([] if "llm.model=null" in overrides else ["llm.model=m"]),
            *overrides,
            data=data,
        )

    assert any(each.startswith(fault) for each in caught.value.faults), caught.value.faults


def test_show_prompts_sends_nothing(serve, generation):
    server = serve()
    made = generation(
        server,
        "show_prompts=true",
        "llm.price={input: 1000, output: 1000}",
        data="nli",
    )
    screen = io.StringIO()
    console = Console(
        file=screen,
        width=60,
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    print_prompts(
        made.writer,
        made.sentences[: made.wanted],
        made.finished,
        console,
    )
    shown = screen.getvalue()

    assert server.calls == []
    assert "calls: 18 to http://127.0.0.1" in shown

    made.run()
    sent = {message["content"] for call in server.calls for message in call.body["messages"][:-1]}

    assert len(sent) == 3
    assert all(text in shown for text in {*sent, made.sentences[0]})

    (about,) = re.findall(r"cost: about \$([\d.,]+), at \$1000", shown)
    real = sum(len(m["content"]) for call in server.calls for m in call.body["messages"]) / 4 / 1000

    assert float(about.replace(",", "")) == pytest.approx(real, rel=0.3)
    assert generation(None, "show_prompts=true").llm.endpoint.model == "(llm.model is not set)"


@pytest.mark.parametrize(
    ("data", "overrides", "experiment", "expected"),
    [
        ("wiki", [f"paths.data_dir={sample_dir()}"], "wiki_sts_ht", f"paths.data_dir={sample_dir()}"),
        ("nli", ["+pattern=nli"], "nli_nli", ""),
        ("file", ["data.train=wiki_split/dev"], "wiki_sts_ht", "corpora.ngcse_wiki=[wiki_split/dev]"),
        ("inli", [], "nli_sts_ht", "corpora.nli_train=[inli/train] "
         "data.rows.corpus._target_=lightning_cse.data.INLITriplets"),
    ],
)  # fmt: skip
def test_training_command(generation, data, overrides, experiment, expected):
    made = generation(
        None,
        "llm.model=m",
        *overrides,
        data=data,
    )
    words = shlex.split(list(made.conclusion())[-1].splitlines()[-1])

    assert words[:3] == ["python", "-m", "lightning_cse.train"]

    *rest, watched, rows = words[3:]

    assert watched == f"data.watched_in=[{made.rows}]"
    assert (
        " ".join(rest)
        == f"+experiment=ngcse_{experiment} corpora=sample paths=sample {expected}".strip()
    )
    assert rows.endswith(f"=[{made.rows}]")

    config_check.check(
        compose("train", *ordered(words[3:])),
        "train",
        words[3:],
    )


def test_training_record_has_the_provenance_of_rows(serve, generation, run_tiny, tmp_path):
    made = generation(
        serve(),
        own(tmp_path, 40),
        "n=35",
    )
    made.run()
    command = shlex.split(list(made.conclusion())[-1].splitlines()[-1])
    record = run_tiny(tmp_path, *command[3:]).read()
    (provenance,) = record["provenance"].values()

    assert (provenance["model"], provenance["unchanged"], provenance["rows"]["count"]) == (
        "m",
        True,
        35,
    )
    assert record["rows"]["training_rows"] == 40 - record["rows"]["dropped: held out"] == 36
