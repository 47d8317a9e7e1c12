"""Models in Python: what they answer, that it is what evaluation measures, and what loading them costs."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles import save_tiny

import lightning_cse
from lightning_cse import SentenceModel
from lightning_cse.analysis.exporting import export
from lightning_cse.embeddings import DualEmbedding, GaussianEmbedding
from lightning_cse.encoders import tiny_encoder
from lightning_cse.engine.load import LoadedModel
from lightning_cse.errors import ConfigError, EncoderError, TaskError
from lightning_cse.models import (
    DualGaussianModel,
    DualModel,
    GaussianModel,
    ImpScoreModel,
    PointModel,
)

SENTENCES = [
    "The ferry leaves at noon.",
    "",
    "salt " * 90 + "was dear.",
    "Is it?",
    "He fixed the gate.",
    "Is it?",
]
PREMISES, HYPOTHESES = SENTENCES[:3], SENTENCES[3:]

tiny = partial(tiny_encoder, max_length=48)


def loaded(answers: Any) -> LoadedModel:
    return LoadedModel(
        answers.eval(), "made", None, {}, {"weights": "1" * 64}, type(answers).__name__
    )


def made(kind: Callable[..., Any], **options: Any) -> SentenceModel:
    """An untrained model; its own layers are random."""
    torch.manual_seed(0)
    return SentenceModel(loaded(kind(tiny(), **options)), torch.device("cpu"))


VIEWS = {
    PointModel: ["primary"],
    GaussianModel: ["mean", "variance"],
    DualModel: ["explicit", "implicit"],
    DualGaussianModel: ["explicit", "implicit", "explicit_variance", "implicit_variance"],
    ImpScoreModel: ["pragmatic", "semantic"],
}
QUESTIONS = {
    PointModel: ["similarity", "entailment"],
    GaussianModel: ["similarity", "entailment", "direction"],
    DualModel: ["similarity", "entailment", "implicitness", "direction"],
    DualGaussianModel: ["similarity", "entailment", "implicitness", "direction"],
    ImpScoreModel: ["similarity", "entailment", "implicitness"],
}


@pytest.mark.parametrize("kind", VIEWS)
def test_every_view_is_what_evaluation_embeds_in_the_order_of_the_sentences(kind: Any) -> None:
    model = made(kind)
    assert model.views == VIEWS[kind]
    embedding = model.answers.embed(SENTENCES)
    want = {
        name.replace("log_", ""): value.exp()
        for name, value in embedding.fields().items()
        if "log" in name
    }
    for view, vectors in (embedding.views() | want).items():
        for batch_size in (2, 1024):
            found = model.encode(SENTENCES, view, batch_size=batch_size)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, vectors, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            model.encode(SENTENCES[4], view), vectors[4], rtol=1e-4, atol=1e-5
        )
    assert np.array_equal(model.encode(SENTENCES), model.encode(SENTENCES, model.views[0]))


def test_what_encode_returns() -> None:
    model = made(PointModel)
    tensor = model.encode(tuple(SENTENCES), convert_to="torch")
    assert tensor.dtype == torch.float32
    assert torch.equal(tensor, torch.from_numpy(model.encode(SENTENCES)))
    unit = model.encode((text for text in SENTENCES), normalize=True)
    np.testing.assert_allclose(unit, tensor / tensor.norm(dim=1, keepdim=True), rtol=1e-5)
    assert model.encode([]).shape == (0, 32)
    assert model.similarity_matrix([], SENTENCES).shape == (0, 6)
    assert model.max_length == 46


@pytest.mark.parametrize("kind", VIEWS)
def test_answers_are_those_of_the_model_row_by_row(kind: Any) -> None:
    model = made(kind)
    assert model.questions == QUESTIONS[kind]
    a, b = (model.answers.embed(side) for side in (PREMISES, HYPOTHESES))
    with torch.no_grad():
        score = model.answers.entailment_score
        want = {"similarity": model.answers.similarity(a, b), "entailment": score(a, b)}
        want["direction"] = score(a, b).double() - score(b, a).double()
        for question in set(want) & set(model.questions):
            found = getattr(model, question)(PREMISES, HYPOTHESES)
            np.testing.assert_allclose(found, want[question], rtol=1e-4, atol=1e-5)
            single = getattr(model, question)(PREMISES[0], HYPOTHESES[0])
            assert isinstance(single, float)
            assert single == pytest.approx(float(want[question][0]), abs=1e-5)
            repeated = getattr(model, question)(PREMISES[0], HYPOTHESES)
            want_repeated = getattr(model, question)(PREMISES[:1] * 3, HYPOTHESES)
            np.testing.assert_allclose(repeated, want_repeated, rtol=1e-4, atol=1e-5)
        if "implicitness" in model.questions:
            implicit = model.answers.implicitness(a)
            np.testing.assert_allclose(model.implicitness(PREMISES), implicit, rtol=1e-4, atol=1e-5)
    matrix = model.similarity_matrix(PREMISES, SENTENCES)
    rows = [model.similarity(premise, SENTENCES) for premise in PREMISES]
    np.testing.assert_allclose(matrix, rows, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        model.similarity_matrix(PREMISES), matrix[:, :3], rtol=1e-4, atol=1e-5
    )


class Known:
    """A model whose embeddings say what the answers must be: the first sentence is the wider Gaussian."""

    def embed(self, sentences: list[str]) -> GaussianEmbedding:
        rows = len(sentences)
        logs = torch.tensor([[1.0 if text == "animal" else -1.0] for text in sentences]).expand(
            rows, 32
        )
        return GaussianEmbedding(torch.ones(rows, 32), logs)


def test_a_direction_is_positive_for_a_premise_and_its_hypothesis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = made(GaussianModel)
    monkeypatch.setattr(model.answers, "embed", Known().embed)
    forward = model.direction("dog", "animal")
    assert forward == -model.direction("animal", "dog")
    assert (forward > 0) == (model.entailment("dog", "animal") > model.entailment("animal", "dog"))
    assert model.encode(["animal"], "variance")[0].tolist() == pytest.approx([np.e] * 32)


def test_what_a_model_cannot_answer_is_said_with_what_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = made(PointModel)
    for ask, message in (
        (
            lambda: model.implicitness("a"),
            "made (PointModel) has no implicitness (it has: similarity, entailment)",
        ),
        (
            lambda: model.direction("a", "b"),
            "made (PointModel) has no direction (it has: similarity, entailment)",
        ),
        (
            lambda: model.encode("a", "primry"),
            "has no view 'primry' - did you mean 'primary'? (it has: primary)",
        ),
    ):
        with pytest.raises(TaskError) as raised:
            ask()
        assert message in str(raised.value)
    with pytest.raises(ValueError, match="3 and 2 sentences"):
        model.similarity(PREMISES, HYPOTHESES[:2])
    assert model.similarity("a", []).shape == (0,)
    nothing = torch.full((1, 2), torch.nan)
    monkeypatch.setattr(model.answers, "embed", lambda _: DualEmbedding(nothing, nothing))
    with pytest.raises(EncoderError, match="some embeddings are not finite numbers"):
        model.embed("a")


@pytest.mark.parametrize(
    ("kind", "view", "reading"),
    [
        *((PointModel, None, {"pooling": "mean"}), (partial(PointModel, has_head=True), None, {})),
        *((GaussianModel, None, {}), (DualModel, "implicit", {}), (ImpScoreModel, "semantic", {})),
        (PointModel, None, {"pooling": "prompt"}),
        (PointModel, None, {"pooling": "prompt", "prompts": ["{} : in short , {mask} it is ."]}),
    ],
)
def test_an_exported_folder_gives_the_vectors_of_the_model(
    kind: Any, view: str | None, reading: dict[str, Any], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = loaded(kind(tiny(**reading)))
    export(model, tmp_path / "made", view=view)
    found = lightning_cse.load(tmp_path / "made")
    assert found.name == "made"
    want = model.answers.embed(SENTENCES).views()[
        view or next(iter(model.answers.embed(["a"]).views()))
    ]
    np.testing.assert_allclose(found.encode(SENTENCES), want, rtol=1e-4, atol=1e-5)
    layers = found.answers.head
    assert (layers is not None) == ("modules" in found.loaded.digests)


@pytest.mark.parametrize(
    ("module", "change", "message"),
    [
        ("2_LSTM", {}, r"has the module LSTM, not supported here: set pooling"),
        (
            "2_Dense",
            {"activation_function": "torch.nn.modules.activation.Mish"},
            "2_Dense: a Dense with .*Mish",
        ),
        (
            "2_Dense",
            {"module_input_name": "token_embeddings"},
            "2_Dense: a Dense with .*token_embeddings",
        ),
        (
            "2_Dense",
            {"out_features": 31},
            r"2_Dense: .*size mismatch.* \(a Dense needs model\.safetensors\)",
        ),
        (
            "2_WordWeights",
            {"vocab": ["a", "b"], "word_weights": {"a": 0.5}, "unknown_word_weight": 1},
            "2_WordWeights",
        ),
    ],
)
def test_a_module_that_is_not_applied_is_refused(
    module: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "made"
    export(loaded(PointModel(tiny(), has_head=True)), folder)
    modules = json.loads((folder / "modules.json").read_text())
    modules[2] |= {"path": module, "type": f"sentence_transformers.models.{module[2:]}"}
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "2_Dense").rename(folder / module)
    config = folder / module / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(EncoderError, match=message):
        lightning_cse.load(folder)
    assert lightning_cse.load(folder, pooling="cls").answers.head is None


def test_another_similarity_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    export(loaded(ImpScoreModel(tiny())), tmp_path / "made")
    lightning_cse.load(tmp_path / "made")
    assert (
        "compares its vectors with euclidean; here they are compared with the cosine" in caplog.text
    )


def test_devices_kinds_of_numbers_and_plain_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    folder = save_tiny(tmp_path / "plain")
    for options, message in (
        ({"device": "cuda"}, "device: torch finds no cuda on this machine"),
        ({"dtype": "float16"}, "dtype: must be auto or float32 or bfloat16, got 'float16'"),
        ({}, r"pooling: .*plain has no modules\.json that says how it pools: choose cls or mean"),
    ):
        with pytest.raises((ConfigError, EncoderError), match=message):
            lightning_cse.load(folder, **options)
    model = lightning_cse.load(folder, "cpu", pooling="mean")
    rough = lightning_cse.load(str(folder), dtype=torch.bfloat16, pooling="mean").encode(SENTENCES)
    assert rough.dtype == np.float32
    assert 0 < np.abs(rough - model.encode(SENTENCES)).max() < 0.1
    with pytest.raises(EncoderError, match="there is no model 'tinny' - did you mean 'tiny'"):
        lightning_cse.load("tinny")


def test_loading_and_asking_import_neither_lightning_nor_hydra() -> None:
    code = (
        "import sys, time\n"
        "from transformers import BertModel\n"
        "before = time.process_time()\n"
        "import lightning_cse\n"
        "model = lightning_cse.load('tiny')\n"
        "model.encode(['a', 'b']); model.questions; model.similarity_matrix('a', 'b')\n"
        "print(time.process_time() - before, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, *modules = done.stdout.split()
    assert not {
        "pytorch_lightning",
        "hydra",
        "datasets",
        "torchmetrics",
        "sklearn",
        "pandas",
    } & set(modules)
    assert float(seconds) < 1.5
