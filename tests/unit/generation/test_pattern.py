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
from lightning_cse.generation.filters import Checks
from lightning_cse.generation.pattern import Pattern, build_pattern, wrong_pattern

Node = dict[str, Any]

# Of the prompts on the sample corpus. Whoever changes a word of them, or the draw of the examples, changes these.
DIGESTS = {
    "sts": "df23bdfa829409cc0d2f5d90cc5bfbd9bb2126a86a51c0e4f88704be330aab40",
    "nli": "bd9a596eca936430b6d9c2b61582bc6c00881fcca42408f3155a81cadc0f44eb",
}
OFFICIAL = "23d550f1c7af148f44e5ced6af87e9c8e44b8b9284d39865a559c9ff045b9dcb"  # of sts on the real STS12

# Another language, a chain of references, and examples that stand in the config.
FOUR = """
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
  - {name: gegenteil, reference: kürzer, task: Sage das Gegenteil., relation: "B widerspricht A:", fields: [A, B],
     examples: [["Es regnet.", "Es ist trocken."]], rule: Nur den Satz., checks: null}
"""


def four() -> Node:
    node: Node = OmegaConf.to_container(OmegaConf.create(FOUR), resolve=True)  # type: ignore[assignment]
    return node


@pytest.fixture(scope="module")
def built(repository: Path) -> Callable[..., Pattern]:
    """A pattern of conf/ on the sample corpus, or another one."""

    def build(name: str, *overrides: str, data_dir: Path | None = None) -> Pattern:
        with initialize_config_dir(str(repository / "conf"), version_base="1.3"):
            cfg = hydra_compose(overrides=["+corpora=full", f"+pattern={name}", *overrides])
        node: Node = OmegaConf.to_container(cfg, resolve=True)["pattern"]  # type: ignore[assignment,index,call-overload]
        assert list(wrong_pattern(node)) == []
        return build_pattern(node, data_dir or sample_dir())

    return build


@pytest.mark.parametrize("name", DIGESTS)
def test_the_prompts_are_what_they_were(name: str, built: Callable[..., Pattern]) -> None:
    assert built(name).digest == DIGESTS[name]


def test_the_examples_of_the_official_corpus_are_those_that_were_chosen(
    built: Callable[..., Pattern], real_data: Path
) -> None:
    assert built("sts", data_dir=real_data).digest == OFFICIAL


def test_the_patterns_of_conf(built: Callable[..., Pattern]) -> None:
    sts, nli = built("sts"), built("nli")
    made_of = [("positive", "source"), ("intermediate", "positive"), ("negative", "positive")]
    assert [(role.name, role.reference) for role in sts.roles] == made_of
    assert [(role.name, role.reference) for role in nli.roles] == [made_of[0], made_of[2]]
    checks = [Checks(shortest=0.3), Checks(less_detail_than="positive"), Checks()]
    assert [role.checks for role in sts.roles] == checks
    assert [role.checks for role in nli.roles] == [Checks(), Checks()]
    assert [role.examples.label for role in sts.roles] == [
        "sts12/train, score above 4",
        "sts12/train, score above 1 and below 4",
        "sts12/train, score below 1",
    ]
    assert set(nli.digests) == {"simcse/nli_for_simcse.csv"}
    for role in (*sts.roles, *nli.roles):
        first, second = role.fields
        shown = [f"Example {n}\n{first}: {a}\n{second}: {b}" for n, (a, b) in enumerate(role.examples.shown, start=1)]
        assert role.system.split("\n\n")[2:-1] == shown
        assert len(shown) == 3


def test_both_prompts_of_nli_show_the_same_premises(built: Callable[..., Pattern]) -> None:
    for seed in range(3):
        positive, negative = (role.examples.shown for role in built("nli", f"pattern.seed={seed}").roles)
        assert [first for first, _ in positive] == [first for first, _ in negative]
        assert {second for _, second in positive}.isdisjoint(second for _, second in negative)


def test_the_digest_is_of_all_that_is_sent_and_of_nothing_else(built: Callable[..., Pattern]) -> None:
    changed = ["seed=1", "shots=2", "reference=source", "roles.0.rule=Be brief.", "roles.2.name=opposite"]
    assert len({built("sts", f"pattern.{change}").digest for change in changed} | {DIGESTS["sts"]}) == 6
    for kept in ("name=mine", "roles.1.checks.longest=9"):
        assert built("sts", f"pattern.{kept}").digest == DIGESTS["sts"]


def test_a_pattern_of_ones_own_with_drawn_and_inline_examples() -> None:
    node = four()
    drawn = {"from": ["sts12/train"], "first": "sentence1", "second": "sentence2", "scores": {"below": 1}}
    node["roles"][3]["examples"] = drawn
    assert list(wrong_pattern(node)) == []
    pattern = build_pattern(node, sample_dir())
    assert [role.reference for role in pattern.roles] == ["source", "gleich", "source", "kürzer"]
    assert pattern.roles[0].system == (
        "Schreibe {den} Satz um.\nBeide sagen dasselbe:\n\n"
        "Beispiel 1\nSatz A: Es {task} regnet.\nSatz B: Regen fällt.\n\n"
        "Beispiel 2\nSatz A: Er ging.\nSatz B: Er lief fort.\n\n"
        "Gib nur den Satz zurück."
    )
    assert [len(role.examples.shown) for role in pattern.roles] == [2, 1, 1, 3]
    assert [role.checks for role in pattern.roles[2:]] == [Checks(longest=None), Checks()]
    with pytest.raises(DataError, match=r"^pattern\.roles\.3\.examples: .*, and pattern\.shots is 99: set fewer"):
        build_pattern(node | {"shots": 99}, sample_dir())


GOOD = {"from": ["sts12/train"], "first": "sentence1", "second": "sentence2", "scores": {"above": 1, "below": None}}


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("reference", "source", None),
        ("roles.3.examples", GOOD | {"longer_first": None}, None),
        ("roles.3.checks", {"refused_words": ["Es tut mir leid"], "shortest": 1}, None),
        ("name", ..., "name: Field required"),
        ("name", "a/b", "name: String should match"),
        ("shot", 3, "shot: there is no such key - did you mean 'shots'?"),
        ("shots", 0, "shots: Input should be greater than or equal to 1, got '0'"),
        ("seed", 1.5, "seed: Input should be a valid integer"),
        ("layout", "{task}", "layout: Input should be an object"),
        ("layout.prompt", "{taks} {examples}", "layout.prompt: unknown placeholder {taks} - did you mean 'task"),
        ("layout.examples", "", "layout.examples: there is no such key - did you mean 'example'?"),
        ("roles", [], "roles: "),
        ("roles.1", "kürzer", "roles.1: Input should be an object"),
        ("roles.3.name", "anchor", "roles.3.name: must not be"),
        ("roles.3.name", "gleich", "roles.3.name: must not be the source or an earlier role, got 'gleich'"),
        ("roles.3.name", "not one", "roles.3.name: String should match"),
        ("roles.3.reference", "gegenteil", "roles.3.reference: must be one of ['source', 'gleich', 'kürzer', "),
        ("roles.1.reference", "gleic", "roles.1.reference: must be one of ['source', 'gleich'], got 'gleic' - did you"),
        ("roles.3.task", " ", "roles.3.task: String should match"),
        ("roles.3.rule", ..., "roles.3.rule: Field required"),
        ("roles.3.field", 3, "roles.3.field: there is no such key - did you mean 'fields'?"),
        ("roles.3.fields", ["A"], "roles.3.fields.1: Field required"),
        ("roles.3.examples", [["a", "b"], ["a"]], "roles.3.examples.1.1: Field required"),
        ("roles.3.examples", GOOD | {"from": "sts12"}, "roles.3.examples.from: Input should be a valid array"),
        ("roles.3.examples", GOOD | {"frm": 1}, "roles.3.examples.frm: there is no such key - did you mean"),
        ("roles.3.examples", GOOD | {"scores": {"over": 4}}, "roles.3.examples.scores.over: there is no such"),
        ("roles.3.checks", {"longst": 3}, "roles.3.checks.longst: there is no such key - did you mean 'longest"),
        ("roles.3.checks", {"longest": 0}, "roles.3.checks.longest: Input should be greater than 0, got '0'"),
        ("roles.3.checks", {"most_sentences": True}, "roles.3.checks.most_sentences: Input should be a valid"),
        ("roles.3.checks", {"refused_words": "Nein"}, "roles.3.checks.refused_words: Input should be a valid"),
        ("roles.3.checks", {"refused_words": [" "]}, "roles.3.checks.refused_words.0: String should match"),
        ("roles.1.checks", {"less_detail_than": "frage"}, "roles.1.checks.less_detail_than: must be one of"),
    ],
)  # fmt: skip
def test_faults(path: str, value: Any, fault: str | None) -> None:
    node: Any = four()
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = node
    for part in way:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = copy.deepcopy(value)
    found = list(wrong_pattern(node))
    assert len(found) == (fault is not None)
    assert fault is None or found[0].startswith(f"pattern.{fault}"), found


@pytest.mark.parametrize("node", [None, "sts", ["sts"]])
def test_no_pattern_at_all(node: Any) -> None:
    assert list(wrong_pattern(node)) == [f"pattern: Input should be an object, got {str(node)!r}"]


def test_all_faults_are_reported_at_once() -> None:
    node = four() | {"shots": 0}
    node["roles"][0]["task"], node["roles"][2]["fields"], node["roles"][1]["checks"] = 1, None, {"longst": 1}
    places = ["shots", "roles.0.task", "roles.1.checks.longst", "roles.2.fields"]
    assert [fault.partition(": ")[0] for fault in wrong_pattern(node)] == [f"pattern.{place}" for place in places]
    node = four()
    node["roles"][1]["reference"] = node["roles"][3]["reference"] = "gleihc"
    assert len(list(wrong_pattern(node))) == 2
