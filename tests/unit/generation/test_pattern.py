"""The standing instructions of patterns: how they are put together, what they hold, and what is wrong with a config."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from lightning_cse.data import sample_dir
from lightning_cse.errors import DataError
from lightning_cse.generation.checks import Checks
from lightning_cse.generation.pattern import Pattern, build_pattern, wrong_pattern

Node = dict[str, Any]

DIGESTS = {
    "sts": "df23bdfa829409cc0d2f5d90cc5bfbd9bb2126a86a51c0e4f88704be330aab40",
    "nli": "bd9a596eca936430b6d9c2b61582bc6c00881fcca42408f3155a81cadc0f44eb",
}
"""Of the prompts on the sample corpus. Whoever changes a word of them changes these."""

# Five roles of another language, each with examples that stand in the config.
FIVE = """
name: inhalt
shots: 3
seed: 0
layout:
  prompt: "{task}\\n{relation}\\n\\n{examples}\\n\\n{rule}"
  example: "Beispiel {number}\\n{first_field}: {first}\\n{second_field}: {second}"
roles:
  - {name: gleich, reference: source, task: "Schreibe {den} Satz um.", relation: "Beide sagen dasselbe:",
     fields: [Satz A, Satz B], examples: [["Es {task} regnet.", "Regen fällt."], ["Er ging.", "Er lief fort."]],
     rule: "Gib nur den Satz zurück."}
  - {name: kürzer, reference: gleich, task: Kürze ihn., relation: "B ist kürzer:", fields: [A, B],
     examples: [["Es regnet heute stark.", "Es regnet."]], rule: Nur den Satz., checks: {less_detail_than: gleich}}
  - {name: frage, reference: source, task: Frage danach., relation: "B fragt nach A:", fields: [A, B],
     examples: [["Es regnet.", "Regnet es?"]], rule: Nur die Frage., checks: {longest: null}}
  - {name: folge, reference: kürzer, task: "Was folgt?", relation: "B folgt aus A:", fields: [A, B],
     examples: [["Es regnet.", "Die Straße ist nass."]], rule: Nur den Satz., checks: null}
  - {name: gegenteil, reference: folge, task: Sage das Gegenteil., relation: "B widerspricht A:", fields: [A, B],
     examples: [["Es regnet.", "Es ist trocken."]], rule: Nur den Satz.}
"""


def five(**changes: Any) -> Node:
    node: Node = OmegaConf.to_container(OmegaConf.create(FIVE), resolve=True)  # type: ignore[assignment]
    return node | changes


@pytest.fixture(scope="module")
def composed(repository: Path) -> Callable[..., Node]:
    """The node of a pattern of conf/, as a command would have it."""

    def compose(name: str, *overrides: str) -> Node:
        with initialize_config_dir(str(repository / "conf"), version_base="1.3"):
            cfg = hydra_compose(overrides=["+corpora=full", f"+pattern={name}", *overrides])
        node: Node = OmegaConf.to_container(cfg, resolve=True)["pattern"]  # type: ignore[index,call-overload]
        assert list(wrong_pattern(node)) == []
        return node

    return compose


@pytest.fixture(scope="module")
def built(composed: Callable[..., Node]) -> Callable[..., Pattern]:
    return lambda name, *overrides: build_pattern(composed(name, *overrides), sample_dir())


# The patterns of conf/


@pytest.mark.parametrize("name", DIGESTS)
def test_the_prompts_are_what_they_were(name: str, built: Callable[..., Pattern]) -> None:
    assert built(name).digest == DIGESTS[name]


def test_the_examples_of_the_official_corpus_are_those_that_were_chosen(
    composed: Callable[..., Node], real_data: Path
) -> None:
    """The seed was chosen by what it draws there: rows in another order would show other pairs."""
    sts = build_pattern(composed("sts"), real_data)
    assert sts.digest == "23d550f1c7af148f44e5ced6af87e9c8e44b8b9284d39865a559c9ff045b9dcb"
    for first, second in next(role for role in sts.roles if role.name == "intermediate").prompt.examples:
        assert len(second.split()) < len(first.split())


def test_a_list_of_refused_words_comes_from_the_command_line(composed: Callable[..., Node]) -> None:
    node = composed("sts", "pattern.roles.0.checks.refused_words=[Es tut mir leid]")
    assert build_pattern(node, sample_dir()).roles[0].checks.refused_words == ["Es tut mir leid"]


def test_roles_fields_and_references_are_those_of_the_paper(built: Callable[..., Pattern]) -> None:
    sts, nli = built("sts"), built("nli")
    assert [(role.name, role.reference) for role in sts.roles] == [
        ("positive", "source"),
        ("intermediate", "positive"),
        ("negative", "positive"),
    ]
    assert [(role.name, role.reference) for role in nli.roles] == [("positive", "source"), ("negative", "positive")]
    assert {role.prompt.fields for role in sts.roles} == {("Sentence 1", "Sentence 2")}
    assert {role.prompt.fields for role in nli.roles} == {("Premise", "Hypothesis")}
    assert [role.checks for role in sts.roles] == [
        Checks(shortest=0.3),
        Checks(less_detail_than="positive"),
        Checks(),
    ]
    assert [role.checks for role in nli.roles] == [Checks(), Checks()]
    assert {name: pool.label for name, pool in sts.pools.items()} == {
        "positive": "sts12/train, score above 4",
        "intermediate": "sts12/train, score above 1 and below 4",
        "negative": "sts12/train, score below 1",
    }
    assert {pool.label for pool in nli.pools.values()} == {"simcse_nli/train"}
    assert set(nli.digests) == {"simcse/nli_for_simcse.csv"}
    assert len(sts.digests) == 6


@pytest.mark.parametrize("name", DIGESTS)
def test_a_prompt_is_task_relation_three_examples_and_rule(
    name: str, built: Callable[..., Pattern], composed: Callable[..., Node]
) -> None:
    for role, node in zip(built(name).roles, composed(name)["roles"], strict=True):
        system = role.prompt.system
        parts = system.split("\n\n")
        assert len(parts) == 6
        assert (parts[0], parts[1], parts[-1]) == (node["task"], node["relation"], node["rule"])
        first, second = role.prompt.fields
        shown = [f"Example {n}\n{first}: {a}\n{second}: {b}" for n, (a, b) in enumerate(role.prompt.examples, start=1)]
        assert parts[2:-1] == shown
        assert len(shown) == 3
        assert set(role.prompt.examples) <= set(role_pool(built(name), role.name))
        assert not {"{", "}", "  "} & {system[i : i + n] for i in range(len(system)) for n in (1, 2)}
        assert role.messages("It is {rule}.") == (("system", system), ("user", "It is {rule}."))


def role_pool(pattern: Pattern, role: str) -> list[tuple[str, str]]:
    return pattern.pools[role].pairs


def test_both_prompts_of_nli_show_the_same_premises(built: Callable[..., Pattern]) -> None:
    for seed in range(3):
        positive, negative = built("nli", f"pattern.seed={seed}").roles
        premises = [first for first, _ in positive.prompt.examples]
        assert premises == [first for first, _ in negative.prompt.examples]
        assert {second for _, second in positive.prompt.examples}.isdisjoint(b for _, b in negative.prompt.examples)


def test_settings_reach_the_prompts(built: Callable[..., Pattern]) -> None:
    sts = built("sts")
    assert [role.reference for role in built("sts", "pattern.reference=source").roles] == ["source"] * 3
    assert [len(role.prompt.examples) for role in built("sts", "pattern.shots=2").roles] == [2, 2, 2]
    assert built("sts", "pattern.roles.2.rule=Be brief.").roles[2].prompt.system.endswith("\n\nBe brief.")
    other = built("sts", "pattern.seed=1")
    assert [role.prompt.examples for role in other.roles] != [role.prompt.examples for role in sts.roles]
    assert {role: pool.pairs for role, pool in other.pools.items()} == {r: p.pairs for r, p in sts.pools.items()}


def test_the_digest_is_of_all_that_is_sent_and_of_nothing_else(built: Callable[..., Pattern]) -> None:
    digest = built("sts").digest
    changed = ["seed=1", "shots=2", "reference=source", "roles.0.rule=Be brief.", "roles.2.name=opposite"]
    others = {built("sts", f"pattern.{change}").digest for change in changed}
    assert len(others | {digest}) == 1 + len(changed)
    kept = ["name=mine", "roles.1.checks.longest=9"]
    assert {built("sts", f"pattern.{change}").digest for change in kept} == {digest}


# A pattern of one's own


def test_a_pattern_of_five_roles_in_another_language() -> None:
    node = five()
    assert list(wrong_pattern(node)) == []
    pattern = build_pattern(node, Path("nowhere"))
    assert [(role.name, role.reference) for role in pattern.roles] == [
        ("gleich", "source"),
        ("kürzer", "gleich"),
        ("frage", "source"),
        ("folge", "kürzer"),
        ("gegenteil", "folge"),
    ]
    assert pattern.roles[0].prompt.system == (
        "Schreibe {den} Satz um.\nBeide sagen dasselbe:\n\n"
        "Beispiel 1\nSatz A: Es {task} regnet.\nSatz B: Regen fällt.\n\n"
        "Beispiel 2\nSatz A: Er ging.\nSatz B: Er lief fort.\n\n"
        "Gib nur den Satz zurück."
    )
    assert pattern.roles[2].checks == Checks(longest=None)
    assert pattern.roles[3].checks == Checks()
    assert pattern.digests == {}
    assert pattern.pools["gleich"].pairs == list(pattern.roles[0].prompt.examples)


def test_drawn_and_inline_examples_go_together() -> None:
    node = five()
    drawn = {"from": ["sts12/train"], "first": "sentence1", "second": "sentence2", "scores": {"below": 1}}
    node["roles"][4]["examples"] = drawn
    pattern = build_pattern(node, sample_dir())
    assert [len(role.prompt.examples) for role in pattern.roles] == [2, 1, 1, 1, 3]
    assert list(pattern.pools) == [role.name for role in pattern.roles]
    with pytest.raises(DataError, match=r"^pattern\.roles\.4\.examples: for the role 'gegenteil', 99 examples"):
        build_pattern(node | {"shots": 99}, sample_dir())


# Faults


def at(node: Node, path: str, value: Any) -> Node:
    """A node with another value at a path; ``...`` takes the key away."""
    changed = copy.deepcopy(node)
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = changed
    for part in way:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "faults"),
    [
        ("reference", "gleich", []),
        ("reference", "source", []),
        ("name", ..., ["pattern.name: is missing; it is what the pattern is called"]),
        ("name", "???", ["pattern.name: is missing"]),
        ("name", "a/b", ["pattern.name: 'a/b' would name a folder"]),
        ("name", "..", ["pattern.name: '..' would name a folder"]),
        ("name", 3, ["pattern.name: 3 would"]),
        ("shot", 3, ["pattern.shot: there is no such key - did you mean 'shots'?"]),
        ("shots", 0, ["pattern.shots: 0 is not a whole number of at least 1"]),
        ("shots", True, ["pattern.shots: True is not"]),
        ("seed", -1, ["pattern.seed: -1 is not a whole number of at least 0"]),
        ("seed", 1.5, ["pattern.seed: 1.5 is not"]),
        ("seed", ..., ["pattern.seed: is missing"]),
        ("reference", "gleihc", ["pattern.reference: 'gleihc' is neither 'source' nor a role - did you mean 'gleich'"]),
        ("layout", ..., ["pattern.layout: is missing"]),
        ("layout", "{task}", ["pattern.layout: '{task}' has no prompt"]),
        ("layout.prompt", ..., ["pattern.layout.prompt: is missing"]),
        ("layout.prompt", 3, ["pattern.layout.prompt: 3 is not a text"]),
        ("layout.prompt", "{task} {examples}", []),
        ("layout.prompt", "{task}", ["pattern.layout.prompt: has no {examples}"]),
        ("layout.prompt", "{taks} {examples}", ["pattern.layout.prompt: nothing fills {taks} - did you mean 'task'?",
                                                "pattern.layout.prompt: has no {task}"]),
        ("layout.example", "{first}{second}{third}", ["pattern.layout.example: nothing fills {third}"]),
        ("layout.example", "{first}", ["pattern.layout.example: has no {second}"]),
        ("layout.examples", "", ["pattern.layout.examples: there is no such key - did you mean 'example'?"]),
        ("roles", ..., ["pattern.roles: is missing"]),
        ("roles", [], ["pattern.roles: [] is not a list of at least one role"]),
        ("roles", {"gleich": {}}, ["pattern.roles: {'gleich': {}} is not a list"]),
        ("roles.1", "kürzer", ["pattern.roles.1: 'kürzer' is not a role; a role has name, reference, task",
                               "pattern.roles.3.reference: 'kürzer' is neither"]),
        ("roles.4.name", ..., ["pattern.roles.4.name: is missing"]),
        ("roles.4.name", "anchor", ["pattern.roles.4.name: 'anchor' is the name of the sentence that rows are made"]),
        ("roles.4.name", "source", ["pattern.roles.4.name: 'source' is the name"]),
        ("roles.4.name", "gleich", ["pattern.roles.4.name: 'gleich' is the name of an earlier role; each"]),
        ("roles.4.name", "not one", ["pattern.roles.4.name: 'not one' is no key of a row"]),
        ("roles.4.name", 5, ["pattern.roles.4.name: 5 is no key of a row"]),
        ("roles.4.reference", ..., ["pattern.roles.4.reference: is missing"]),
        ("roles.4.reference", "gegenteil", ["pattern.roles.4.reference: 'gegenteil' is neither 'source' nor a role b"]),
        ("roles.1.reference", "folge", ["pattern.roles.1.reference: 'folge' is neither 'source' nor a role before t"]),
        ("roles.1.reference", "gleic", ["pattern.roles.1.reference: 'gleic' is neither 'source' nor a role before this "
                                        "one - did you mean 'gleich'?; there are source, gleich"]),
        ("roles.4.reference", ["folge"], ["pattern.roles.4.reference: ['folge'] is neither"]),
        ("roles.4.task", "", ["pattern.roles.4.task: '' is no text that says what the model is to do"]),
        ("roles.4.rule", ..., ["pattern.roles.4.rule: is missing; it is what the reply is to be"]),
        ("roles.4.relation", 3, ["pattern.roles.4.relation: 3 is no text"]),
        ("roles.4.field", 3, ["pattern.roles.4.field: there is no such key - did you mean 'fields'?"]),
        ("roles.4.fields", ["A"], ["pattern.roles.4.fields: ['A'] is not two texts"]),
        ("roles.4.fields", "AB", ["pattern.roles.4.fields: 'AB' is not two texts"]),
        ("roles.4.examples", [], ["pattern.roles.4.examples: [] is neither a list of pairs"]),
        ("roles.4.examples", {"from": ["sts12"], "first": "a", "second": "b"},
         ["pattern.roles.4.examples.from: 'sts12' is not of the form corpus/split"]),
        ("roles.4.checks", {"longst": 3}, ["pattern.roles.4.checks.longst: "]),
        ("roles.1.checks", {"less_detail_than": "folge"}, ["pattern.roles.1.checks.less_detail_than: 'folge'"]),
        ("roles.4.checks", {"refused_words": "Nein"}, ["pattern.roles.4.checks.refused_words: 'Nein' is not a list"]),
        ("roles.4.checks", [], ["pattern.roles.4.checks: [] "]),
    ],
)  # fmt: skip
def test_faults(path: str, value: Any, faults: list[str]) -> None:
    found = list(wrong_pattern(at(five(), path, value)))
    assert len(found) == len(faults), found
    for fault, begins in zip(found, faults, strict=True):
        assert fault.startswith(begins)


@pytest.mark.parametrize("node", [None, "???", "sts", ["sts"]])
def test_no_pattern_at_all(node: Any) -> None:
    assert list(wrong_pattern(node)) == [f"pattern: {node!r} has no roles; choose a pattern, as in +pattern=sts"]


def test_a_shared_reference_that_is_wrong_is_told_once() -> None:
    node = five(reference="positiv")
    for role in node["roles"][1:]:
        role["reference"] = "positiv"
    (fault,) = wrong_pattern(node)
    assert fault.startswith("pattern.reference: 'positiv' is neither")


def test_all_faults_are_told_at_once_and_no_file_is_read() -> None:
    node = at(at(at(five(shots=0), "roles.0.task", 1), "roles.2.fields", None), "layout.prompt", "{task}")
    node["roles"][3]["examples"] = {"from": ["none/none.jsonl"], "first": "a", "second": "b"}
    assert [fault.partition(": ")[0] for fault in wrong_pattern(node)] == [
        "pattern.shots",
        "pattern.layout.prompt",
        "pattern.roles.0.task",
        "pattern.roles.2.fields",
    ]
