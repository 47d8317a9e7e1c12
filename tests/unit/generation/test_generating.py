"""From a config to rows that a language model wrote: kept, continued, told, and trained on."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from llm_server import ChatServer, prompt
from omegaconf import DictConfig
from rich.console import Console

from lightning_cse.config import conf_dir
from lightning_cse.config.check import check
from lightning_cse.config.compose import compose, register
from lightning_cse.config.launch import ordered
from lightning_cse.data import Sentences, read_corpus, sample_dir
from lightning_cse.data.corpora import read_own
from lightning_cse.data.drawing import hold_out
from lightning_cse.data.sources import read_sources
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.generation import Journal, Settled
from lightning_cse.generation.generating import Generation, _check
from lightning_cse.generation.prompts import print_prompts
from lightning_cse.llm import LLMError
from lightning_cse.runs import Busy, locked

Generate = Callable[..., Generation]

ROLES = ("positive", "intermediate", "negative")


def composed(*overrides: str) -> DictConfig:
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return hydra_compose("generate", ordered(overrides))


def asked(body: dict[str, Any]) -> str:
    """The role that a request is for, by what the prompts say of it."""
    system = body["messages"][0]["content"]
    for role, words in (("intermediate", "fewer details"), ("positive", "means the same|entails"), ("negative", "")):
        if re.search(words, system):
            return role
    raise AssertionError


def answer(body: dict[str, Any]) -> str:
    words = prompt(body).rstrip(".").split()
    return {
        "positive": " ".join([*words[1:], "so", "it", "is"]) + ".",
        "intermediate": " ".join(words[: len(words) // 2]) + ".",
        "negative": "Nothing of the kind: " + " ".join(reversed(words[:4])) + ".",
    }[asked(body)]


@pytest.fixture
def serve() -> Iterator[Callable[..., ChatServer]]:
    with ExitStack() as stack:
        yield lambda *arguments, **named: stack.enter_context(ChatServer(*(arguments or (answer,)), **named))


@pytest.fixture
def generation(tmp_path: Path) -> Generate:
    """What is to be generated for the sample corpus; runs and caches of a test lie in its folder."""

    def made(server: ChatServer | None, *overrides: str, data: str = "wiki") -> Generation:
        places = ("paths=sample", f"paths.runs_dir={tmp_path}/runs", f"paths.cache_dir={tmp_path}/cache")
        endpoint = [f"llm.base_url={server.url}", "llm.model=m", "llm.backoff=0.001"] if server else []
        given = [f"data={data}", "n=6", "encoder=tiny", "corpora=sample", "+pattern=sts", *places, *endpoint]
        set_again = {override.lstrip("+").partition("=")[0] for override in overrides}
        line = [*(each for each in given if each.lstrip("+").partition("=")[0] not in set_again), *overrides]
        cfg = composed(*line)
        _check(cfg)
        return Generation(cfg, data, line)

    return made


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rows_are_written_in_the_order_of_drawing_and_read_as_llm_rows(
    serve: Callable[..., ChatServer], generation: Generate
) -> None:
    server = serve()
    made = generation(server, "llm.price={input: 2, output: 4}")
    provenance = made.run()
    rows = lines(made.rows)
    assert [row["anchor"] for row in rows] == list(made.sentences[:6])
    assert set(made.sentences) == set(read_corpus("wiki1m", "train", sample_dir()).column("sentence"))
    assert [list(row) for row in rows] == [["anchor", *ROLES]] * 6
    assert read_own(str(made.rows)).column("intermediate") == [row["intermediate"] for row in rows]
    assert made.given_up.read_text() == ""
    assert len(server.calls) == 18
    assert provenance["rows"]["count"] == 6
    assert (provenance["model"], provenance["served"]) == ("m", {"m": 18})
    assert provenance["pattern"]["name"] == "sts"
    assert provenance["acceptance"]["sources"] == {"complete": 6, "given_up": 0}
    tokens = provenance["tokens"]
    assert provenance["cost"] == pytest.approx((2 * tokens["prompt"] + 4 * tokens["completion"]) / 1e6)
    assert provenance["made"]["started"] <= provenance["made"]["finished"]
    again = generation(server)
    assert again.finished
    assert again.run() == provenance
    assert len(server.calls) == 18


def test_a_dead_endpoint_loses_nothing(serve: Callable[..., ChatServer], generation: Generate) -> None:
    whole = generation(serve(), "llm.model=other")
    whole.run()

    server = serve(seconds=0.005)

    def dies(body: dict[str, Any], _: int) -> str | None:
        return "error" if sum(server.answered.values()) >= 7 else None

    server.plan = dies
    first = generation(server, "llm.retries=0", "llm.concurrency=2")
    with pytest.raises(
        LLMError, match=r"of 6 sentences got no reply: status 500.*\b2 rows are there, and the same comm"
    ):
        first.run()
    assert not first.rows.exists()
    answered = server.answered.copy()
    server.plan = None
    second = generation(server, "llm.concurrency=5")
    assert second.folder == first.folder
    assert len(second.unwritten()) == 4
    second.run()
    assert sum(server.answered.values()) == 18  # each exactly once
    assert answered <= server.answered
    assert lines(second.rows) == lines(whole.rows)


def test_killed_at_any_moment_the_journal_and_the_cache_go_on(
    serve: Callable[..., ChatServer], generation: Generate, tmp_path: Path
) -> None:
    server = serve()
    made = generation(server)
    made.run()
    rows, journal = lines(made.rows), (made.folder / "journal.jsonl").read_bytes()
    assert sum(server.answered.values()) == 18
    for cut in (0, 10, len(journal) // 2, len(journal) - 1, len(journal)):
        for path in made.folder.glob(f"{made.name}*"):
            path.unlink()
        (made.folder / "journal.jsonl").write_bytes(journal[:cut])
        generation(server).run()
        assert lines(made.rows) == rows
        assert sum(server.answered.values()) == 18
    # Where the cache is gone, the journal is enough for what was settled.
    (tmp_path / "cache" / "llm" / "replies.sqlite").unlink()
    made.rows.unlink()
    made.rows.with_name(f"{made.name}.provenance.json").unlink()
    generation(server).run()
    assert lines(made.rows) == rows
    assert sum(server.answered.values()) == 18


@pytest.mark.parametrize("harm", ["missing", "shorter", "no side file", "damaged side file", "all but the journal"])
def test_rows_that_are_not_as_they_were_written_are_written_again(
    serve: Callable[..., ChatServer], generation: Generate, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    made = generation(server)
    provenance = made.run()
    content, side = made.rows.read_bytes(), made.rows.with_name(f"{made.name}.provenance.json")
    {
        "missing": made.rows.unlink,
        "shorter": lambda: made.rows.write_bytes(content[:-5]),
        "no side file": side.unlink,
        "damaged side file": lambda: side.write_text("{"),
        "all but the journal": lambda: [path.unlink() for path in made.folder.iterdir() if path.stem != "journal"],
    }[harm]()
    again = generation(server).run()
    assert made.rows.read_bytes() == content
    assert again["acceptance"] == provenance["acceptance"]
    assert harm == "all but the journal" or again["made"]["started"] == provenance["made"]["started"]
    assert len(server.calls) == 18
    told = "is not as it was written" in caplog.text
    assert told is (harm not in ("no side file", "all but the journal"))


def test_an_encoder_out_of_reach_takes_the_cosines_away_and_nothing_else(
    serve: Callable[..., ChatServer], generation: Generate, caplog: pytest.LogCaptureFixture
) -> None:
    made = generation(serve(), "encoder=bert_base", "encoder.source=/nowhere")
    made.run()
    assert made.summary()["encoder"] is None
    assert "the rows are there, and no cosines are measured: " in caplog.text


def test_more_rows_cost_only_those_that_are_new(serve: Callable[..., ChatServer], generation: Generate) -> None:
    server = serve()
    first, second = generation(server), generation(server, "n=8")
    first.run()
    assert second.folder != first.folder
    provenance = second.run()
    assert len(server.calls) == 24
    assert lines(second.rows)[:6] == lines(first.rows)
    assert provenance["tokens"]["prompt"] > 0  # what the rows took, whenever it was paid


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("llm.concurrency=3", True),
        ("llm.price={input: 1, output: 1}", True),
        ("llm.base_url=http://localhost:1/v1", True),
        ("encoder=minilm_l6", True),
        ("looked_at=5", True),
        ("seed=1", False),
        ("n=5", False),
        ("samples=2", False),
        ("llm.model=another", False),
        ("llm.parameters.temperature=0.5", False),
        ("+llm.parameters.top_p=0.5", False),
        ("pattern.reference=source", False),
        ("pattern.seed=1", False),
        ("most_words=20", False),
        ("patience=3", True),
    ],
)
def test_the_folder_is_named_by_what_decides_the_rows(
    serve: Callable[..., ChatServer], generation: Generate, override: str, same: bool
) -> None:
    server = serve()
    assert (generation(server).folder == generation(server, override).folder) is same


def test_the_sentences_name_the_folder_and_not_their_files(
    serve: Callable[..., ChatServer], generation: Generate, tmp_path: Path
) -> None:
    server = serve()
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("".join(f"Sentence {k} of file {name} is short.\n" for k in range(9)))
    a, b = f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"
    first = generation(server, f"data.train=[{a},{b}]")
    assert generation(server, f"data.train=[{a}]").folder != first.folder
    assert generation(server, f"data.train=[{b},{a}]").folder == first.folder
    (tmp_path / "c.txt").write_text((tmp_path / "a.txt").read_text() + (tmp_path / "b.txt").read_text())
    assert generation(server, f"data.train=[{tmp_path}/c.txt]").folder == first.folder
    dev, test = (generation(server, f"data.train=[impscore/{s}]", data="implicit_pairs") for s in ("dev", "test"))
    assert dev.folder != test.folder  # two splits of one file


def test_the_draw_has_nothing_to_do_with_what_training_holds_out(generation: Generate, tmp_path: Path) -> None:
    corpus = tmp_path / "own.txt"
    corpus.write_text("".join(f"Sentence {k} of this file is short.\n" for k in range(1000)))
    made = generation(None, "llm.model=m", f"data.train=[{corpus}]", "n=100")
    _, apart = hold_out(Sentences()(read_sources([str(corpus)], tmp_path, key="x")), 0.1, of="anchor")
    held_out = set(apart.column("anchor"))
    assert len(held_out) == 100
    assert 1 <= len(held_out.intersection(made.sentences[:100])) <= 25  # ten or so, and not all of them
    assert sorted(made.sentences) == sorted(corpus.read_text().splitlines())
    other = generation(None, "llm.model=m", f"data.train=[{corpus}]", "n=100", "seed=1")
    assert 1 <= len(set(other.sentences[:100]).intersection(made.sentences[:100])) <= 25


def test_a_journal_of_other_sentences_is_refused(serve: Callable[..., ChatServer], generation: Generate) -> None:
    made = generation(serve())
    with Journal(made.folder / "journal.jsonl") as journal:
        journal.append(Settled(2, "Another one.", {}, (), 1, 1, 1, 0, {}, complete=False))
    with pytest.raises(DataError, match="sentence 2 is not the one that is drawn there now: move the folder away"):
        made.run()


def test_a_fault_of_all_sentences_is_not_paid_for_all(serve: Callable[..., ChatServer], generation: Generate) -> None:
    server = serve(lambda body: "")
    line = ("n=2", "samples=1", "llm.concurrency=4", "patience=20")
    told = r"21 of 21 sentences were given up; of the last one, the positive was rejected \(empty\): ''\. Change"
    with pytest.raises(LLMError, match=told):
        generation(server, *line).run()
    assert 21 <= len(server.calls) <= 21 + 4
    before = len(server.calls)
    with pytest.raises(
        LLMError, match="22 of 22 sentences were given up"
    ):  # the next start does not begin to count anew
        generation(server, *line).run()
    assert len(server.calls) <= before + 4


def test_sentences_that_are_given_up_among_others_stop_nothing(
    serve: Callable[..., ChatServer], generation: Generate
) -> None:
    fails = set(generation(serve()).sentences[:20:3])
    server = serve(lambda body: "" if prompt(body) in fails else answer(body))
    with pytest.raises(LLMError, match="1 of 1 sentences were given up"):
        generation(server, "n=9", "samples=1", "patience=0", "llm.concurrency=1").run()
    made = generation(server, "n=9", "samples=1", "patience=2", "llm.concurrency=1")
    made.run()
    assert [each["anchor"] for each in lines(made.given_up)] == list(made.sentences[:13:3])


def test_what_the_endpoint_refuses_is_asked_again_until_all_is_done(
    serve: Callable[..., ChatServer], generation: Generate, tmp_path: Path
) -> None:
    (tmp_path / "own.txt").write_text("".join(f"Sentence number {k} of this file is short.\n" for k in range(5)))
    own = (f"data.train=[{tmp_path}/own.txt]", "n=null")
    server = serve(answer, lambda body, _: "bad_request")
    with pytest.raises(LLMError, match="5 of 5 sentences got no reply: status 400: Unsupported parameter"):
        generation(server, *own).run()
    # One refused, and one that the way takes: all is not done, so that neither is settled.
    made = generation(server, *own)
    faults = {made.sentences[1]: "bad_request", made.sentences[3]: "error"}
    server.plan = lambda body, _: faults.get(prompt(body))
    with pytest.raises(LLMError, match="1 of 5 sentences got no reply: status 500"):
        generation(server, *own, "llm.retries=0").run()
    del faults[made.sentences[3]]
    generation(server, *own).run()
    assert [each["anchor"] for each in lines(made.given_up)] == [made.sentences[1]]
    assert [row["anchor"] for row in lines(made.rows)] == [made.sentences[place] for place in (0, 2, 3, 4)]


def test_showing_prompts_beside_a_running_command_changes_nothing(
    serve: Callable[..., ChatServer], generation: Generate
) -> None:
    made = generation(serve())
    made.run()
    journal = made.folder / "journal.jsonl"
    side = made.rows.with_name(f"{made.name}.provenance.json")
    side.unlink()
    half = journal.read_bytes()[:-20]  # as a reader sees it while a line is written
    journal.write_bytes(half)
    assert len(generation(None, "show_prompts=true", "llm.model=m").unwritten()) == 1
    assert journal.read_bytes() == half


def test_what_is_given_up_is_listed_and_others_take_its_place(
    serve: Callable[..., ChatServer], generation: Generate
) -> None:
    plain = generation(serve())
    third = plain.sentences[2]

    def refuses(body: dict[str, Any]) -> str:
        return "I'm sorry, but I can't help with that." if prompt(body) == third else answer(body)

    server = serve(refuses)
    made = generation(server, "samples=2")
    provenance = made.run()
    assert [row["anchor"] for row in lines(made.rows)] == [s for s in made.sentences[:7] if s != third]
    (given_up,) = lines(made.given_up)
    assert given_up["anchor"] == third
    assert [(each["role"], each["reason"]) for each in given_up["rejected"]] == [("positive", "refused")] * 2
    assert provenance["acceptance"]["roles"]["positive"] == {"asked": 8, "accepted": 6, "rejected": {"refused": 2}}
    assert any(line.startswith("given up: ") and line.endswith("(1, and why)") for line in made.conclusion(provenance))


def test_sentences_that_nothing_comes_of(
    serve: Callable[..., ChatServer], generation: Generate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = tmp_path / "own.txt"
    corpus.write_text("One short sentence is here.\nAnother short sentence is there.\nOne short sentence is here.\n")
    own = f"data.train=[{corpus}]"
    with pytest.raises(DataError, match=r"n: 3 rows are asked for, and data=wiki has 2 sentences; n=null"):
        generation(serve(), own, "n=3")
    nothing = generation(serve(lambda body: ""), own, "n=null", "samples=1")
    with pytest.raises(DataError, match=r"given_up.jsonl: not one of 2 sentences has a row; see"):
        nothing.run()
    assert len(lines(nothing.given_up)) == 2
    assert not nothing.rows.exists()

    def half(body: dict[str, Any]) -> str:
        return "" if "Another" in prompt(body) else answer(body)

    made = generation(serve(half), own, "n=null", "samples=1", "llm.model=half")
    provenance = made.run()
    assert provenance["sources"]["drawn"] == 2
    assert len(lines(made.rows)) == 1
    assert "1 rows and not 2, since 1 were given up" in caplog.text


def test_one_process_at_a_time(serve: Callable[..., ChatServer], generation: Generate) -> None:
    made = generation(serve())
    with locked(made.folder / "run.lock", "x"), pytest.raises(Busy):
        made.run()
    made.run()


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["llm.model=null"], "llm.model: say which model"),
        (["llm.requests_per_minute=0"], "llm.requests_per_minute: 0"),
        (["pattern.reference=positve"], "pattern.reference: 'positve' is neither 'source' nor a role"),
        (["show_prompts=yess"], "show_prompts: 'yess' is neither true nor false"),
        (["paths.cache_dir=null"], "paths.cache_dir: null keeps no reply"),
        (["pattern.shots=0"], "pattern.shots: 0 is not a whole number of at least 1"),
    ],
)
def test_faults(generation: Generate, overrides: list[str], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        generation(None, *([] if overrides == ["llm.model=null"] else ["llm.model=m"]), *overrides)
    assert any(each.startswith(fault) for each in caught.value.faults), caught.value.faults


def test_a_set_that_is_made_of_such_rows_has_no_sentences_of_its_own(generation: Generate) -> None:
    with pytest.raises(ConfigError, match="give the one of its sentences, as data=wiki or data=nli"):
        generation(None, "llm.model=m", data="ngcse_wiki_sts")


def test_prompts_are_shown_as_they_are_sent_and_nothing_is_sent(
    serve: Callable[..., ChatServer], generation: Generate
) -> None:
    server = serve()
    made = generation(server, "show_prompts=true", "llm.price={input: 1000, output: 1000}", data="nli")
    screen = io.StringIO()
    show = (made.writer, made.sentences[0], made.unwritten(), made.wanted, made.asker.endpoint)
    print_prompts(*show, Console(file=screen, width=60))
    shown = screen.getvalue()
    assert server.calls == []
    assert "rows: 6, of which 0 are there" in shown
    assert "calls: 18 to http://127.0.0.1" in shown
    made.run()
    sent = {message["content"] for call in server.calls for message in call.body["messages"][:-1]}
    assert len(sent) == 3
    assert all(text in shown for text in sent)
    assert made.sentences[0] in shown
    (about,) = re.findall(r"cost: about \$([\d.,]+), at \$1000", shown)
    real = sum(len(m["content"]) for call in server.calls for m in call.body["messages"]) / 4 / 1000
    assert float(about.replace(",", "")) == pytest.approx(real, rel=0.3)


def test_nothing_is_asked_where_there_is_no_model(generation: Generate) -> None:
    made = generation(None, "show_prompts=true")
    assert made.asker.endpoint.model == "(llm.model is not set)"


@pytest.mark.parametrize(
    ("data", "overrides", "expected"),
    [
        (
            "wiki",
            [f"paths.data_dir={sample_dir()}", "corpora.wiki=[wiki_split/dev]"],
            f"+experiment=ngcse_wiki_sts_ht paths.data_dir={sample_dir()} corpora.wiki=[wiki_split/dev] "
            "corpora.llm_wiki_sts=[ROWS]",
        ),
        ("wiki", [], "+experiment=ngcse_wiki_sts_ht corpora.llm_wiki_sts=[ROWS]"),
        ("nli", ["+pattern=nli"], "+experiment=ngcse_nli_nli corpora.llm_nli_nli=[ROWS]"),
        (
            "wiki",
            ["data.train=[wiki_split/dev]"],
            "+experiment=ngcse_wiki_sts_ht corpora.ngcse_wiki=[wiki_split/dev] corpora.llm_wiki_sts=[ROWS]",
        ),
        (
            "inli",
            [],
            "+experiment=ngcse_nli_sts_ht corpora.nli_train=[inli/train] "
            "data.rows.corpus._target_=lightning_cse.data.INLIQuadruples corpora.llm_nli_sts=[ROWS]",
        ),
    ],
)
def test_the_command_that_trains(
    serve: Callable[..., ChatServer], generation: Generate, data: str, overrides: list[str], expected: str
) -> None:
    made = generation(serve(), *overrides, data=data)
    *_, heading, command = made.conclusion({"acceptance": {"sources": {"given_up": 0}}})
    assert heading == "to train on them:"
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "lightning_cse.train"]
    assert " ".join(words[3:]) == expected.replace("ROWS", str(made.rows))
    check(compose("train", *ordered(words[3:])), "train", words[3:])


def test_rows_are_trained_on_and_the_record_says_where_they_come_from(
    serve: Callable[..., ChatServer], generation: Generate, run_tiny: Callable[..., Any], tmp_path: Path
) -> None:
    corpus = tmp_path / "own.txt"
    corpus.write_text("".join(f"In year {year} the old bridge was closed for a while.\n" for year in range(1900, 1940)))
    made = generation(serve(), f"data.train=[{corpus}]", "n=20")
    made.run()
    command = shlex.split(made.conclusion({"acceptance": {"sources": {"given_up": 0}}})[-1])
    record = run_tiny(tmp_path, *command[3:]).read()
    (provenance,) = record["provenance"].values()
    assert (provenance["model"], provenance["unchanged"]) == ("m", True)
    assert provenance["rows"]["count"] == 20
    held_out = record["rows"]["dropped: held out"]
    assert 36 == record["rows"]["training_rows"] == 40 - held_out
    assert 17 <= record["rows"]["llm_rows"] <= 19  # of 20, and of four held out some are among them
