"""Training with an adapter, from the command's overrides to a folder for others."""

import functools
import json

import pytest
import torch
from oracles import save_tiny
from peft import PeftModel
from sentence_transformers import SentenceTransformer
from small_runs import LITTLE, SMALL, assert_same, curves, dies_at
from transformers import AutoModel, AutoTokenizer

import lightning_cse
from lightning_cse.errors import ConfigError, EncoderError
from lightning_cse.export import main

pytestmark = pytest.mark.slow
SENTENCES = ["The ferry leaves at noon.", "Is that yours?", "Über Größe."]
LORA = ("+adapter=lora", "encoder.adapter.r=4", "method.optimizer.lr=1e-3", "keep_last=true")


@pytest.fixture
def run(run_tiny, tmp_path):
    """Train for six steps with LoRA."""
    return lambda *overrides, name="": run_tiny(tmp_path / name, *SMALL, *LORA, *overrides)


def test_killed_run_resumes_and_is_loaded(run, caplog):
    line = ("method=dualcse_bi", "encoder.freeze_embeddings=true")
    with caplog.at_level("INFO", "lightning_cse"):
        uninterrupted = run(*line, name="whole")

    with dies_at(5):
        run(*line, name="killed")

    assert_same(run(*line, name="killed"), uninterrupted)

    count = uninterrupted.read()["parameters"]
    share = 100 * count["trainable"] / count["total"]
    assert f"trains {share:.2g} % of {count['total']:,} parameters: LORA, r=4" in caplog.text

    model = lightning_cse.load(uninterrupted.path)
    state = torch.load(uninterrupted.checkpoints / "best.ckpt", weights_only=True)["state_dict"]
    weights = {f"model.{name}": weight for name, weight in model.answers.named_parameters()}
    assert state.keys() <= weights.keys()
    assert sum(weight.numel() for weight in state.values()) == count["trainable"]
    assert {key.split(".")[-3] for key in state if ".encoder." in key} == {"lora_A", "lora_B"}
    assert all(torch.equal(weight, weights[key]) for key, weight in state.items())


@pytest.mark.parametrize(
    ("override", "dropout"),
    [("method.chunk_size=3", 0), ("encoder.gradient_checkpointing=true", 0.1)],
)
def test_other_ways_to_the_same_numbers(override, dropout, run):
    dropouts = (f"encoder.dropout={dropout}", f"encoder.adapter.lora_dropout={dropout}")
    expected = run(*dropouts, name="whole")
    changed = run(*dropouts, override, name="other")
    assert changed.path.name == expected.path.name  # no part of the config hash
    for key, points in curves(expected).items():
        assert curves(changed)[key] == pytest.approx(points, rel=1e-4, abs=1e-4), key


@pytest.fixture
def trained(run_tiny, tmp_path):
    """A run of SimCSE with LoRA on the encoder of a folder."""
    folder = save_tiny(tmp_path / "bert")
    little = [override for override in LITTLE if not override.startswith("encoder.")]
    return run_tiny(
        tmp_path,
        "+experiment=simcse_sup",
        *little,
        *LORA,
        f"encoder={folder}",
        "encoder.pooling=mean",
        "encoder.max_length=64",
    )


def test_export_merges_or_keeps_the_adapter(trained, tmp_path, capsys):
    model = lightning_cse.load(trained.path)
    expected = torch.from_numpy(model.encode(SENTENCES))
    close = functools.partial(torch.testing.assert_close, atol=1e-5, rtol=1e-4)

    merged = tmp_path / "merged"
    assert main(["--model", str(trained.path), "--to", str(merged)]) == 0
    assert not list(merged.rglob("adapter*"))
    encode = functools.partial(
        SentenceTransformer.encode, sentences=SENTENCES, convert_to_tensor=True
    )
    close(encode(SentenceTransformer(str(merged), device="cpu")), expected)

    alone = tmp_path / "alone"
    assert main(["--model", str(trained.path), "--to", str(alone), "--adapter"]) == 0
    assert not (alone / "model.safetensors").exists()
    base = json.loads((alone / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert base == str(tmp_path / "bert")
    transformer = SentenceTransformer(str(alone), device="cpu")
    close(encode(transformer), expected)

    # By peft alone: the mean of the states, then the head of sentence-transformers' folder.
    backbone = PeftModel.from_pretrained(AutoModel.from_pretrained(base), str(alone)).eval()
    inputs = AutoTokenizer.from_pretrained(alone)(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = backbone(**inputs).last_hidden_state
        mask = inputs["attention_mask"][:, :, None]
        features = {"sentence_embedding": (states * mask).sum(1) / mask.sum(1)}
        for module in list(transformer)[2:]:
            features = module(features)

    close(features["sentence_embedding"], expected)
    assert main(["--model", "tiny", "--to", str(tmp_path / "no"), "--adapter"]) == 2
    assert "has no adapter; leave it out" in capsys.readouterr().err


def test_adapter_that_its_extra_lacks(compose, run):
    with pytest.raises(ConfigError, match=r"encoder\.adapter\.rank: unknown key"):
        run("+encoder.adapter.rank=3")

    for name in ("lora", "dora", "ia3"):
        adapter = compose("+experiment=simcse_sup", f"+adapter={name}").encoder.adapter
        assert adapter._target_.startswith("peft.")


def test_changed_encoder_is_refused(trained, tmp_path):
    save_tiny(tmp_path / "bert", seed=1)
    with pytest.raises(EncoderError, match="the weights of the encoder bert changed since"):
        lightning_cse.load(trained.path)
