"""Instructions: text before a sentence by its use, as sentence-transformers puts it there."""

import json
import logging

import pytest
import torch
from data_modules import data_module, ids_of
from encoder_kinds import save_kind
from sentence_transformers import SentenceTransformer

from lightning_cse.analysis.exporting import export
from lightning_cse.data import NLITriplets
from lightning_cse.encoders import load_encoder, tiny_encoder
from lightning_cse.encoders.instructions import USES
from lightning_cse.engine.inference import SentenceModel
from lightning_cse.engine.load import load
from lightning_cse.errors import ConfigError, EncoderError
from lightning_cse.models import PointModel

E5 = {"query": "query: ", "document": "passage: "}
TEXTS = ["A cat sleeps.", "  the dog barks at the moon .", "Rain."]


def encoder_of(folder, instructions=None):
    return load_encoder(
        name="x", source=str(folder), pooling="mean", max_length=24, instructions=instructions
    )


def model_of(encoder):
    model = PointModel(encoder)
    return SentenceModel(model, "x", model.settings()["_target_"], encoder.digests)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_kind("bert", tmp_path_factory.mktemp("bert") / "bert")


@pytest.mark.parametrize(
    "instructions", [E5, {"query": "find : "}, E5 | {"default": ""}, E5 | {"default": "passage: "}]
)
def test_vectors_are_those_of_sentence_transformers(instructions, folder, tmp_path):
    encoder = encoder_of(folder, instructions)
    model = model_of(encoder)
    export(model, tmp_path / "to")

    exported = SentenceTransformer(str(tmp_path / "to"), device="cpu")
    reloaded = load(tmp_path / "to", "cpu")
    assert reloaded.encoder.instructions == encoder.instructions

    encoders = {
        "default": exported.encode,
        "query": exported.encode_query,
        "document": exported.encode_document,
    }
    for use, encode in encoders.items():
        expected = torch.tensor(encode(TEXTS))
        for mine in (model, reloaded):
            vectors = torch.tensor(mine.encode(TEXTS, use=use))
            torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=1e-5)

    bare = model_of(encoder_of(folder))
    text = instructions["query"] + TEXTS[0]
    assert bare.encode(text) == pytest.approx(model.encode(TEXTS[0], use="query"), abs=1e-6)


@pytest.mark.parametrize("name", ["passage", "corpus"])
def test_a_folder_that_has_a_prompt_for_documents_alone(name, folder, tmp_path):
    export(model_of(encoder_of(folder)), tmp_path / "to")
    settings = tmp_path / "to" / "config_sentence_transformers.json"
    content = json.loads(settings.read_text())
    settings.write_text(json.dumps(content | {"prompts": {name: "passage: "}}))

    encoder = load_encoder(name="x", source=str(tmp_path / "to"), pooling="auto")
    assert encoder.instructions == {"default": "", "query": "", "document": "passage: "}
    model = model_of(encoder)
    # Their encode_document takes the empty prompt that they add under the name "document".
    exported = SentenceTransformer(str(tmp_path / "to"), device="cpu")
    for use, prompt in {"default": None, "query": "query", "document": name}.items():
        expected = torch.tensor(exported.encode(TEXTS, prompt_name=prompt))
        vectors = torch.tensor(model.encode(TEXTS, use=use))
        torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=1e-5)


def test_a_search_has_queries_and_documents():
    model = model_of(tiny_encoder(instructions=E5))
    query = model.embed(TEXTS[:1], use="query")
    documents = model.embed(TEXTS, use="document")
    scores = torch.cosine_similarity(query.vector, documents.vector)
    (hits,) = model.search(TEXTS[0], TEXTS, k=3)
    assert [hit.row for hit in hits] == scores.argsort(descending=True).tolist()
    assert [hit.score for hit in hits] == pytest.approx(scores.sort(descending=True)[0].tolist())

    with pytest.raises(ConfigError, match="use: must be one of default, query, document"):
        model.embed(TEXTS, use="passage")


def test_roles_of_training():
    encoder = tiny_encoder(instructions=E5)
    tokenize = encoder.tokenizer
    data = data_module(
        ["simcse_nli/train"],
        NLITriplets(),
        tokenize=tokenize,
        roles=("anchor", "positive", "negative"),
        instructed=encoder.instructed,
    )
    assert len({encoder.instructed[use].digest for use in ("query", "document")}) == 2

    data.setup()
    batch = data.collate(torch.arange(4))
    for role, text in {
        "anchor": "query: ",
        "positive": "passage: ",
        "negative": "passage: ",
    }.items():
        sentences = [data.train[row][role] for row in range(4)]
        expected = tokenize([text + sentence for sentence in sentences])
        assert ids_of(batch["roles"][role]) == expected


@pytest.mark.parametrize("instructions", [None, {}, {"query": "", "document": ""}])
def test_none(instructions):
    encoder = tiny_encoder(instructions=instructions)
    assert encoder.instructions == {}
    assert all(encoder.instructed[use] is encoder.tokenizer for use in USES)


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        ({"querry": "query: "}, r"instructions: must be of .*got 'querry'.*query"),
        ({"query": 3}, r"instructions\.query: must be a text, got 3"),
        ({"document": "very long " * 64}, r"instructions\.document: \d+ tokens .*no room"),
    ],
)
def test_refused(instructions, message):
    with pytest.raises(EncoderError, match=message):
        tiny_encoder(instructions=instructions)


def test_differences_from_the_folder_are_said(folder, tmp_path, caplog):
    export(model_of(encoder_of(folder)), tmp_path / "to")
    with caplog.at_level(logging.INFO, "lightning_cse"):
        load_encoder(name="x", source=str(tmp_path / "to"), pooling="mean", max_length=24)
        assert "its folder" not in caplog.text

        load_encoder(name="x", source=str(tmp_path / "to"), pooling="cls", max_length=16)

    assert "x has pooling cls (its folder: mean), max_length 16 (its folder: 24)" in caplog.text


@pytest.mark.slow
def test_a_run_has_them_and_its_hash(run_tiny, tmp_path):
    small = (
        "+experiment=simcse_sup",
        "data.train_rows=16",
        "trainer.max_epochs=1",
        "baselines=none",
    )
    override = "encoder.instructions={query: 'query: ', document: 'passage: '}"
    run = run_tiny(tmp_path, *small, override)
    plain = run_tiny(tmp_path, *small)
    assert run.config_hash != plain.config_hash
    assert "instructions" not in plain.read()["decisive"]["config"]["encoder"]
    assert run.read()["passes"] == "packed"
    assert load(run.path, "cpu").encoder.instructions == E5 | {"default": "query: "}
