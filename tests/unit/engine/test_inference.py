"""A loaded model in Python: vectors, answers, files, search, and what loading imports."""

import numpy as np
import pytest
import torch
from oracles import save_tiny, untrained
from sentence_transformers.util import quantize_embeddings

import lightning_cse
from lightning_cse.errors import ConfigError, DataError, EncoderError, LightningCSEError, TaskError
from lightning_cse.models import (
    DualGaussianModel,
    DualModel,
    GaussianModel,
    ImpScoreModel,
    PointModel,
)
from lightning_cse.progress import progress

SENTENCES = [
    "The ferry leaves at noon.",
    "",
    "salt " * 90 + "was dear.",
    "Is it?",
    "He fixed the gate.",
    "Is it?",
]
PREMISES = SENTENCES[:3]
HYPOTHESES = SENTENCES[3:]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}

VIEWS = {
    PointModel: ["primary"],
    GaussianModel: ["mean", "variance"],
    DualModel: ["explicit", "implicit"],
    DualGaussianModel: ["explicit", "implicit", "explicit_variance", "implicit_variance"],
    ImpScoreModel: ["pragmatic", "semantic"],
}
QUESTIONS = {
    PointModel: [],
    GaussianModel: ["direction"],
    DualModel: ["implicitness", "direction"],
    DualGaussianModel: ["implicitness", "direction"],
    ImpScoreModel: ["implicitness"],
}
"""Those that a model answers beside similarity and entailment."""


@pytest.mark.parametrize("method", VIEWS)
def test_encode_returns_every_view_in_the_order_of_the_sentences(method):
    model = untrained(method)
    assert model.views == VIEWS[method]
    embedding = model.answers.embed(SENTENCES)
    expected = embedding.views()
    for name, value in embedding.fields().items():
        if "log_variance" in name:
            expected[name.replace("log_", "")] = value.exp()

    for view, vectors in expected.items():
        encoded = model.encode(SENTENCES, view)
        assert encoded.dtype == np.float32
        np.testing.assert_allclose(encoded, vectors, **CLOSE)
        np.testing.assert_allclose(model.encode(SENTENCES[4], view), vectors[4], **CLOSE)

    assert np.array_equal(model.encode(SENTENCES), model.encode(SENTENCES, model.views[0]))


def test_encode_accepts_any_iterable_and_counts_truncated_sentences():
    model = untrained(PointModel)
    assert model.max_length == 46
    vectors = model.encode(tuple(SENTENCES))
    assert model.truncated == 1
    unit = model.encode((text for text in SENTENCES), normalize_embeddings=True)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, vectors / lengths, rtol=1e-5)
    assert model.encode([]).shape == (0, 32)
    assert model.similarity_matrix([], SENTENCES).shape == (0, 6)


@pytest.mark.parametrize("method", VIEWS)
def test_answers_are_those_of_the_model_row_by_row(method):
    model = untrained(method)
    assert model.questions == ["similarity", "entailment", *QUESTIONS[method]]
    a = model.answers.embed(PREMISES)
    b = model.answers.embed(HYPOTHESES)
    with torch.no_grad():
        forward = model.answers.entailment_score(a, b)
        backward = model.answers.entailment_score(b, a)
        expected = {
            "similarity": model.answers.similarity(a, b),
            "entailment": forward,
            "direction": forward.double() - backward.double(),
        }
        if "implicitness" in model.questions:
            implicit = model.answers.implicitness(a)
            np.testing.assert_allclose(model.implicitness(PREMISES), implicit, **CLOSE)

    for question in set(expected) & set(model.questions):
        ask = getattr(model, question)
        np.testing.assert_allclose(ask(PREMISES, HYPOTHESES), expected[question], **CLOSE)
        single = ask(PREMISES[0], HYPOTHESES[0])
        assert single == pytest.approx(float(expected[question][0]), abs=1e-5)
        repeated = ask(PREMISES[:1] * 3, HYPOTHESES)
        np.testing.assert_allclose(ask(PREMISES[0], HYPOTHESES), repeated, **CLOSE)

    matrix = model.similarity_matrix(PREMISES, SENTENCES)
    rows = [model.similarity(premise, SENTENCES) for premise in PREMISES]
    np.testing.assert_allclose(matrix, rows, **CLOSE)


@pytest.mark.parametrize("method", VIEWS)
@pytest.mark.parametrize("relation", ["similar", "entails", "entailed_by"])
def test_search_returns_the_best_of_a_loop_over_all_pairs(method, relation):
    model = untrained(method)
    corpus = [f"{word} {number}" for word in ("gate", "tea", "no") for number in range(9)]
    if relation != "similar" and "direction" not in model.questions:
        with pytest.raises(TaskError, match="no direction"):
            model.search(PREMISES, corpus, relation=relation)

        return

    hits = model.search(PREMISES, corpus, 5, relation=relation)
    for query, nearest in zip(PREMISES, hits, strict=True):
        if relation == "similar":
            scores = model.similarity(query, corpus)
        elif relation == "entails":
            scores = model.entailment(query, corpus)
        else:
            scores = model.entailment(corpus, query)

        best = np.sort(scores)[::-1][:5]
        np.testing.assert_allclose([hit.score for hit in nearest], best, **CLOSE)
        np.testing.assert_allclose([scores[hit.row] for hit in nearest], best, **CLOSE)


def test_search_compares_views():
    model = untrained(DualModel)
    hits = model.search(PREMISES, SENTENCES, 3, view="implicit", against="explicit")
    query = model.encode(PREMISES[0], "implicit", normalize_embeddings=True)
    cosines = model.encode(SENTENCES, "explicit", normalize_embeddings=True) @ query
    scores = [score for _, score in hits[0]]
    np.testing.assert_allclose(scores, np.sort(cosines)[::-1][:3], **CLOSE)
    # "Is it?" is there twice: equal scores keep the order of the corpus.
    assert [hit.row for hit in model.search("Is it?", SENTENCES, 2)[0]] == [3, 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", []), "corpus: has no sentences to search in"),
        (("a", ["b"], -1), "k: must be an integer of at least 1, got -1"),
        (("a", ["b"], 0), "k: must be"),
        (("a", ["b", None]), r"corpus\[1\]: must be a string, got None"),
        ((["a", 3], ["b"]), r"queries\[1\]: must be a string, got 3"),
    ],
)
def test_faulty_arguments_of_search(arguments, message):
    with pytest.raises(LightningCSEError, match=message):
        untrained(PointModel).search(*arguments)


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        (None, "sentences: must be a string, or several, got None"),
        (["a", None], r"sentences\[1\]: must be a string, got None"),
        (["a", float("nan")], r"sentences\[1\]: must be a string, got nan"),
        (["a", "b", "c\ud83d"], r"sentences\[2\]: is no text: surrogates not allowed"),
        ("\udc00", r"sentences\[0\]: is no text"),
    ],
)
def test_a_sentence_that_is_no_text_is_named(sentences, message):
    with pytest.raises(DataError, match=message):
        untrained(PointModel).encode(sentences)


@pytest.mark.parametrize("precision", ["float32", "int8", "uint8", "binary", "ubinary"])
@pytest.mark.parametrize("is_tensor", [False, True])
def test_precisions_are_those_of_sentence_transformers(precision, is_tensor):
    model = untrained(PointModel)
    options = {"truncate_dim": 21, "normalize_embeddings": True}
    vectors = model.encode(SENTENCES, **options)
    assert vectors.shape == (6, 21)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    encoded = model.encode(SENTENCES, precision=precision, convert_to_tensor=is_tensor, **options)
    expected = quantize_embeddings(vectors, precision)
    assert isinstance(encoded, torch.Tensor) == is_tensor
    assert np.asarray(encoded).dtype == expected.dtype
    assert np.array_equal(encoded, expected)
    assert model.encode([], precision=precision).shape == (0, 4 if "binary" in precision else 32)


def test_a_progress_in_a_file_is_a_line_a_minute(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    with progress(shown=True) as bar:
        task = bar.add_task("1,000 sentences", total=1000)
        for _ in range(1000):
            bar.advance(task)
            clock[0] += 0.25

    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        f"{number} of 1,000" for number in (1, 241, 481, 721, 961)
    ]


def test_unanswered_questions_name_the_answered_ones():
    model = untrained(PointModel)
    for question, message in (
        (lambda: model.implicitness("a"), "has no implicitness .it has: similarity, entailment"),
        (lambda: model.direction("a", "b"), "has no direction"),
        (lambda: model.encode("a", "primry"), "has no view 'primry'"),
        (lambda: model.search("a", ["b"], view="x"), "has no view 'x'"),
    ):
        with pytest.raises(TaskError, match=message):
            question()

    with pytest.raises(ValueError, match=r"\[2, 3\] sentences"):
        model.similarity(PREMISES, HYPOTHESES[:2])

    assert model.similarity("a", []).shape == (0,)


def test_device_dtype_and_pooling(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    folder = save_tiny(tmp_path / "plain")
    for options, message in (
        ({"device": "cuda"}, "device: torch finds no cuda on this machine"),
        ({"dtype": "float16"}, "dtype: must be float32 or bfloat16, got 'float16'"),
        ({}, r"pooling: .*plain has no modules\.json that says how it pools"),
    ):
        with pytest.raises((ConfigError, EncoderError), match=message):
            lightning_cse.load(folder, **options)

    model = lightning_cse.load(folder, "cpu", pooling="mean")
    rough = lightning_cse.load(str(folder), dtype=torch.bfloat16, pooling="mean").encode(SENTENCES)
    assert rough.dtype == np.float32
    assert 0 < np.abs(rough - model.encode(SENTENCES)).max() < 0.1


def test_encode_takes_the_arguments_of_sentence_transformers(capsys):
    model = untrained(PointModel)
    vectors = model.encode(SENTENCES)
    tensor = model.encode(SENTENCES, convert_to_tensor=True, device="cpu", batch_size=1)

    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_allclose(tensor.numpy(), vectors, atol=1e-5)
    assert model.encode(SENTENCES[0], convert_to_tensor=True).shape == vectors[0].shape

    prompted = model.encode(SENTENCES, prompt="query: ")
    by_hand = model.encode([f"query: {sentence}" for sentence in SENTENCES])
    np.testing.assert_allclose(prompted, by_hand, atol=1e-5)
    assert not np.allclose(prompted, vectors, atol=1e-3)

    capsys.readouterr()
    model.encode(SENTENCES, show_progress_bar=True)
    assert "sentences" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size: must be an integer of at least 1, got 0"),
        ({"use": "question"}, "use: must be one of"),
        ({"use": "query", "prompt": "a: "}, "each replaces the others; give one"),
        ({"prompt_name": "query", "prompt": "a: "}, "each replaces the others; give one"),
        ({"prompt_name": "query"}, "prompt_name: some has no prompt 'query' .it has: none"),
        ({"truncate_dim": 0}, "truncate_dim: must be an integer of at least 1, got 0"),
        ({"precision": "float16"}, "precision: must be one of float32, int8, .* got 'float16'"),
        ({"prompt": "word " * 600}, "prompt: .* leave no room for a sentence"),
    ],
)
def test_faulty_arguments_of_encode(arguments, message):
    with pytest.raises(LightningCSEError, match=message):
        untrained(PointModel).encode(SENTENCES, **arguments)


def test_one_sentence_has_no_range():
    with pytest.raises(ConfigError, match="int8 counts steps between several vectors"):
        untrained(PointModel).encode("a", precision="int8")
