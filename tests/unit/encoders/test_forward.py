"""Every kind of encoder, pooling and precision: packed and padded equal transformers itself."""

import pytest
import torch
import transformers as hf
from encoder_kinds import KINDS, PATHS, gradients_of, load, pad_groups, save_kind, vectors_of
from torch import nn

from lightning_cse.encoders import tiny_encoder
from lightning_cse.encoders.pooling import EARLIER_STATES
from lightning_cse.tokens import Tokens

SENTENCES = [
    "The ferry leaves at noon.",
    "",
    "Nobody had told the new teacher that the bell rings twice, once for the children.",
    "Is that yours?",
    "Über 🙃 naïveté.",
]


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A saved model of every kind."""
    return {name: save_kind(name, tmp_path_factory.mktemp("kinds") / name) for name in KINDS}


def precision(dtype):
    return torch.autocast("cpu", dtype, enabled=dtype != torch.float32)


def expected(folder, pooling, second, dtype):
    """The vectors of transformers' own forward of the padded sentences."""
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    model = hf.AutoModel.from_pretrained(folder).eval()
    texts = [SENTENCES] if second is None else [SENTENCES, [second] * len(SENTENCES)]
    inputs = tokenizer(*texts, padding=True, return_tensors="pt")
    if not KINDS[folder.name].segments:
        inputs.pop("token_type_ids", None)

    with precision(dtype):
        output = model(**inputs, output_hidden_states=True)

    hidden = output.last_hidden_state.float()
    if pooling == "cls":
        return hidden[:, 0]
    if pooling in EARLIER_STATES:
        hidden = (hidden + output.hidden_states[EARLIER_STATES[pooling]].float()) / 2

    mask = inputs["attention_mask"][:, :, None]

    return (hidden * mask).sum(1) / mask.sum(1)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(torch.float32, id="float32"),
        pytest.param(torch.bfloat16, id="bfloat16", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", KINDS)
def test_vectors_equal_transformers(name, dtype, path, folders, monkeypatch):
    for pooling in ("cls", "mean", "first_last", "embedding_last"):
        encoder = load(folders[name], pooling=pooling).eval()
        PATHS[path](encoder, monkeypatch)
        for second in (None, "explicit"):
            with precision(dtype):
                vectors = vectors_of(encoder, SENTENCES, second)

            assert vectors.dtype == torch.float32
            want = expected(folders[name], pooling, second, dtype)
            bound = 1e-5 if dtype == torch.float32 else 0.06
            assert torch.dist(vectors, want) < bound * want.norm()


@pytest.mark.parametrize("most", [None, 1, 50])
@pytest.mark.parametrize("path", PATHS)
def test_requests_in_any_order_equal_single_sentences(path, most, monkeypatch):
    encoder = tiny_encoder(pooling="mean").eval()
    template = encoder.template("implicit")
    want = torch.cat([vectors_of(encoder, [text], "implicit") for text in SENTENCES])
    PATHS[path](encoder, monkeypatch)
    tokens = Tokens.pad(encoder.tokenizer(SENTENCES))
    order = torch.tensor([3, 0, 4, 1, 2])
    requests = [(tokens.select(order), template), (tokens, template)]
    shuffled, plain = encoder(requests, most=most)
    torch.testing.assert_close(shuffled, want[order], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(plain, want, atol=1e-5, rtol=1e-5)


OPTIONS = [{"pooling": "mean"}, {"pooling": "cls_pooler"}, {"pooling": "prompt", "denoise": True}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "albert", "mpnet"])
def test_gradients_of_padded_sentences_equal_those_of_packed_ones(
    name, options, folders, monkeypatch
):
    if options["pooling"] == "cls_pooler" and name != "bert":
        pytest.skip("has no pooler, or the same as BERT")
    if options.get("denoise") and name == "mpnet":
        pytest.skip("its positions cannot be set")

    encoder = load(folders[name], **options)
    want = gradients_of(encoder, SENTENCES)
    pad_groups(encoder, monkeypatch)
    torch.testing.assert_close(gradients_of(encoder, SENTENCES), want, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("dropout", [None, 0.0, 0.3])
@pytest.mark.parametrize("name", KINDS)
def test_dropout_reaches_every_module(name, dropout, folders):
    encoder = load(folders[name], dropout=dropout).train()
    first, second = (vectors_of(encoder, SENTENCES) for _ in range(2))
    drops = dropout > 0 if dropout is not None else name not in ("albert", "modernbert")
    assert encoder.has_dropout is drops
    assert torch.equal(first, second) is not drops
    if dropout is not None:
        modules = [module for module in encoder.modules() if isinstance(module, nn.Dropout)]
        assert {module.p for module in modules} == {dropout}


@torch.no_grad()
def test_only_a_fixed_encoder_keeps_its_vectors():
    encoder = tiny_encoder(layers=1).eval()
    passes = []
    encoder.backbone.register_forward_hook(lambda *_: passes.append(1))

    def vectors(sentences=SENTENCES):
        return vectors_of(encoder, sentences)

    cache: dict[bytes, list[torch.Tensor]] = {}
    with encoder.keeping(cache):
        vectors()
        assert not cache, "its parameters are trained"
        encoder.requires_grad_(False)
        encoder.train()
        assert not torch.equal(vectors(), vectors())
        assert not cache, "it drops at random"
        encoder.eval()
        want = vectors()
        count = len(passes)
        vectors().zero_()
        assert torch.equal(vectors(), want)
        assert len(passes) == count
        assert not torch.equal(vectors(SENTENCES[::-1]), want)
        assert len(passes) == count + 1

    assert torch.equal(vectors(), want)
    assert len(passes) == count + 2
