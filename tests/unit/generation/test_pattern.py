"""Patterns: their instructions, the examples that are drawn for them, and what is wrong with a
config.
"""

import json

import pytest
from omegaconf import OmegaConf

from lightning_cse.config.compose import compose_run
from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.data.rows import digests_of
from lightning_cse.engine.build import plain
from lightning_cse.errors import DataError
from lightning_cse.generation.examples import Source, draw_examples
from lightning_cse.generation.pattern import Checks, build_pattern, wrong_pattern
from lightning_cse.generation.text import letters

# Of the prompts on the sample corpus. Whoever changes a word of them, the draw of the examples, or
# how scores come about, changes these.
DIGESTS = {
    "sts": "c3e645151fea0cb62c7b5f18e90c9a3beafcb550c96366dbc2c7ac82d6ce3f9b",
    "nli": "0a797651a770b4f46c1243b6e7e123add3a5debd6f2b295db5ad3a97bf01853c",
    "sts_guarded": "8e14e71225559a2375a7e7160ce2c1ea0a93b931d307160e03032683347735cd",
    "nli_guarded": "bbd3e34266756b62eb07eff385de8a4d1b393b533687255bac0231fb2df536df",
    "dino": "75dbfd4709111c3e7f79f75ed0e216f59c061d1ad49c9297348eb69bf8a8b9a1",
    "claif": "387274d17d31e9e4cc14f46e1c2b626b7b3049532e91c14de5461bfbff889cff",
    "clhaif": "0e3a63c53233576acb0a9bb2d2f88bff8eb2f9b539f0d389ed2f126baf66e2a8",
}
# of sts_guarded on the real STS12
OFFICIAL = "a33dcfa2278af0fa5320b2fc4c7978496caf5e8ca557db22d9a66de9f7b354d0"

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


def four():
    return OmegaConf.to_container(OmegaConf.create(FOUR), resolve=True)


def build(name, data_dir=None):
    """Build a pattern of conf/, by default on the sample corpus."""
    cfg = compose_run("generate", [f"+pattern={name}", "data=wiki"])

    return build_pattern(plain(cfg.pattern), data_dir or sample_dir())


@pytest.mark.parametrize("name", DIGESTS)
def test_prompt_digests(name):
    assert build(name).digest == DIGESTS[name]


def test_prompt_digest_of_official_corpus(real_data):
    assert build("sts_guarded", real_data).digest == OFFICIAL


def test_custom_pattern():
    node = four()
    from_corpus = {"from": ["sts12/train"], "first": "sentence1", "second": "sentence2"}
    node["roles"][3]["examples"] = {**from_corpus, "scores": {"below": 1}}

    assert list(wrong_pattern(node)) == []

    pattern = build_pattern(node, sample_dir())

    assert [role.reference for role in pattern.roles] == ["source", "gleich", "source", "kürzer"]
    assert pattern.roles[0].system == (
        "Schreibe {den} Satz um.\nBeide sagen dasselbe:\n\n"
        "Beispiel 1\nSatz A: Es {task} regnet.\nSatz B: Regen fällt.\n\n"
        "Beispiel 2\nSatz A: Er ging.\nSatz B: Er lief fort.\n\n"
        "Gib nur den Satz zurück."
    )
    assert [len(role.example_pairs.chosen) for role in pattern.roles] == [2, 1, 1, 3]
    assert [role.checks for role in pattern.roles[2:]] == [Checks(longest=None), Checks()]

    with pytest.raises(DataError, match=r"^pattern\.roles\.3\.examples: .*pattern\.shots is 99"):
        build_pattern(node | {"shots": 99}, sample_dir())


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("name", "a/b", "name: String should match"),
        ("shot", 3, "shot: Extra inputs are not permitted"),
        ("layout.prompt", "{taks} {examples}", "layout: unknown placeholder 'taks'"),
        ("roles.3.name", "gleich", "gleich must not be the source or an earlier role"),
        ("roles.1.reference", "gleic", "'gleic' must be one of ['source', 'gleich']"),
        ("roles.3.checks", {"longest": 0}, "roles.3.checks.longest: Input should be greater"),
        ("roles.1.checks", {"less_detail_than": "frage"}, "kürzer: 'frage' must be one of"),
    ],
)
def test_faults(path, value, fault):
    node = four()
    *keys, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    parent = node

    for part in keys:
        parent = parent[part]

    parent[last] = value
    (message,) = wrong_pattern(node)

    assert fault in message


# Examples


def source(*names, first="sentence1", second="sentence2", **options):
    names = names or ("sts12/train",)
    return Source.model_validate({"from": names, "first": first, "second": second, **options})


def draw(*sources, shots=3, seed=0, data_dir=None):
    by_key = {f"examples.{number}": source_ for number, source_ in enumerate(sources)}
    examples = draw_examples(by_key, data_dir or sample_dir(), shots=shots, seed=seed)
    return list(examples.values())


def own(folder, rows):
    """The source of a file of these pairs."""
    path = folder / "rows.jsonl"
    lines = [
        json.dumps({"anchor": first, "positive": second, "negative": "Nothing."})
        for first, second in rows
    ]
    path.write_text("\n".join(lines), encoding="utf-8")

    return source(str(path), first="anchor", second="positive")


def test_score_bounds():
    rows = read_corpus("sts12", "train", sample_dir())

    assert {1.0, 4.0} <= set(rows["score"])  # the bounds themselves are outside

    for bounds, low, high in (({"above": 4}, 4, 9), ({"above": 1, "below": 4}, 1, 4)):
        (examples,) = draw(source(scores=bounds))
        within = [(row["sentence1"], row["sentence2"]) for row in rows if low < row["score"] < high]

        assert list(examples.pool) == within
        assert len(set(examples.chosen).intersection(examples.pool)) == 3

    assert examples.digests == digests_of([rows])


def test_draw_depends_on_seed_only(tmp_path):
    source_ = own(tmp_path, [(f"First {number}.", f"Second {number}.") for number in range(20)])
    draws = [[first for first, _ in draw(source_, seed=seed)[0].chosen] for seed in (0, 1)]

    assert draws == [["First 15.", "First 3.", "First 12."], ["First 13.", "First 9.", "First 19."]]
    assert draw(source_, shots=5)[0].chosen[:3] == draw(source_)[0].chosen


def test_trivial_and_repeated_pairs_are_left_out(tmp_path):
    rows = [
        ("It rained.", "IT  rained!"),
        ("Tea?", "..."),
        ("Straße", "STRASSE"),
        ("Snow fell.", "It snowed."),
    ]

    assert draw(own(tmp_path, rows), shots=1)[0].pool == (("Snow fell.", "It snowed."),)

    rows = [("One.", "Two."), ("Two!", "Three."), ("Three", "Four."), ("five", "ONE"), ("Six", "7")]
    for seed in range(10):
        (examples,) = draw(own(tmp_path, rows), shots=2, seed=seed)
        assert len({letters(sentence) for pair in examples.chosen for sentence in pair}) == 4


def test_longer_first():
    (plain,), (turned,) = (draw(source(longer_first=longer)) for longer in (False, True))

    assert all(len(first.split()) > len(second.split()) for first, second in turned.pool)

    longer = [pair for pair in plain.pool if len(pair[0].split()) != len(pair[1].split())]

    assert sorted(map(sorted, turned.pool)) == sorted(map(sorted, longer))
    assert any(pair not in plain.pool for pair in turned.pool)


def test_labelled_pairs_become_triplets():
    columns = {"first": "premise", "second": "entailment"}
    (mixed,) = draw(source("simcse_nli/train", "snli/train", **columns))
    (alone,) = draw(source("simcse_nli/train", **columns))
    entailed = {
        (row["premise"], row["hypothesis"])
        for row in read_corpus("snli", "train", sample_dir())
        if row["label"] == "entailment"
    }
    added = mixed.pool[len(alone.pool) :]

    assert mixed.pool[: len(alone.pool)] == alone.pool
    assert 0 < len(added) == len(entailed.intersection(added))


def test_pool_sizes_of_official_corpora(real_data):
    bands = [
        source(scores={"above": 4}),
        source(scores={"above": 1, "below": 4}, longer_first=True),
        source(scores={"below": 1}),
    ]

    assert [len(examples.pool) for examples in draw(*bands, data_dir=real_data)] == [759, 829, 261]
