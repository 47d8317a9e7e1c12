"""Encoders of the kinds that people train: trained, recorded, loaded and exported."""

import pytest
import torch
from encoder_kinds import save_kind
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from small_runs import LITTLE

from lightning_cse.analysis.exporting import export
from lightning_cse.encoders.load import digests
from lightning_cse.engine.load import load as load_model

SENTENCES = ["The ferry leaves at noon.", "", "Is that yours?", "Über 🙃 naïveté."]
RUNS = {
    "mpnet": ("dualcse_bi", "mean", ()),
    "distilbert": ("dualcse_cross", "cls", ()),
    "deberta-v3": ("ngcse_wiki_dropout", "prompt", ()),
    "modernbert": ("simcse_unsup", "cls", ("encoder.dropout=0.1",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_train_record_load_export(name, run_tiny, tmp_path, caplog):
    experiment, pooling, more = RUNS[name]
    folder = save_kind(name, tmp_path / "kinds" / name)
    little = [override for override in LITTLE if not override.startswith("encoder.")]
    options = (f"encoder={folder}", f"encoder.pooling={pooling}", "encoder.max_length=64", *more)
    with caplog.at_level("INFO", "lightning_cse"):
        run = run_tiny(
            tmp_path, f"+experiment={experiment}", "trainer.precision=32-true", *little, *options
        )

    assert run.read()["encoder"] == {"name": name, **digests(folder)}
    assert ("has no segment ids" in caplog.text) == (experiment == "dualcse_cross")

    model = load_model(run.path)
    start = load_file(folder / "model.safetensors")
    trained = model.encoder.backbone.state_dict()
    assert any(not torch.equal(trained[key], start[key]) for key in trained.keys() & start.keys())
    export(model, tmp_path / "exported")
    exported = SentenceTransformer(str(tmp_path / "exported"), device="cpu")
    got = exported.encode(SENTENCES, convert_to_tensor=True)
    want = next(iter(model.answers.embed(SENTENCES).views().values()))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
