"""ConSERT: two augmented views of a sentence in training and in the diagnostics, none at test; with
labels, an attack on the classifier as the second one.
"""

import math

import pytest
import torch
from method_steps import batch_of, logged_step, method_of
from oracles import SENTENCES, nt_xent

from lightning_cse.encoders import (
    AdversarialNoise,
    FeatureCutoff,
    ShuffledPositions,
    TokenEmbeddingCutoff,
    tiny_encoder,
)
from lightning_cse.encoders.cpu.passes import PaddedPasses
from lightning_cse.errors import ConfigError
from lightning_cse.losses import NTXent
from lightning_cse.methods import ConSERT, JointConSERT
from lightning_cse.tokens import Tokens

CUTOFF = FeatureCutoff(0.2)
SHUFFLE = ShuffledPositions()
LABELS = torch.arange(len(SENTENCES)) % 3


def make(first=CUTOFF, second=SHUFFLE):
    encoder = tiny_encoder(pooling="last_two", dropout=0.0)
    return method_of(ConSERT, NTXent(), encoder=encoder, first=first, second=second).train()


@pytest.mark.parametrize(("first", "second"), [(CUTOFF, SHUFFLE), (None, CUTOFF)])
@torch.no_grad()
def test_step_compares_two_augmented_views(first, second):
    method = make(first, second)
    batch = batch_of(method)
    torch.manual_seed(3)
    step = method.training_step(batch, 0)
    torch.manual_seed(3)
    request = [(batch["roles"]["anchor"], method.model.encoder.template())]
    views = [method.model.encoder(request, augment=augment)[0] for augment in (first, second)]
    for role, view in zip(("anchor", "positive"), views, strict=True):
        assert torch.equal(step["embeddings"][role]["vector"], view)

    assert step["loss"].item() == pytest.approx(NTXent()(*views).item())


@torch.no_grad()
def test_views_of_the_diagnostics_are_those_of_training_and_the_test_has_none():
    method = make()
    plain = method.model.embed(SENTENCES).vector
    views = []
    for number in range(2):
        with method.view(number):
            views.append(method.model.embed(SENTENCES).vector)

    for view in views:
        assert (view - plain).norm(dim=1).min() > 1e-2

    assert not torch.allclose(*views)
    assert torch.equal(method.model.embed(SENTENCES).vector, plain)


def test_only_without_augmentations_does_it_need_dropout():
    assert not make().needs_dropout
    assert make(None, None).needs_dropout


# With labels --------------------------------------------------------------------------------


def joint(second, *, padded=False, **options):
    encoder = tiny_encoder(pooling="last_two", dropout=0.0)
    if padded:
        encoder.passes = lambda *_: PaddedPasses

    options |= {"weight": 0.3, "second": second}

    return method_of(JointConSERT, NTXent(0.1), encoder=encoder, **options).train()


def pairs_of(method):
    ids = method.model.encoder.tokenizer(SENTENCES)
    roles = {"premise": Tokens.pad(ids), "hypothesis": Tokens.pad(ids[2:] + ids[:2])}
    return {"roles": roles, "index": torch.arange(len(SENTENCES)), "targets": LABELS}


def vectors_of(method, roles, augment=None):
    """The vectors of premises and hypotheses, which are encoded in one pass."""
    template = method.model.encoder.template()
    requests = [(tokens, template) for tokens in roles.values()]
    return [vectors.double() for vectors in method.model.encoder(requests, augment=augment)]


def classified(method, u, v):
    """The cross-entropy of the classifier, pair by pair."""
    weight, bias = (p.detach().double() for p in method.loss.classifier[0].parameters())
    total = 0.0
    for first, second, label in zip(u, v, LABELS.tolist(), strict=True):
        features = torch.cat(
            [first, second, (first - second).abs(), torch.maximum(first, second) ** 2]
        )
        logits = [float(row @ features) + float(b) for row, b in zip(weight, bias, strict=True)]
        total += math.log(sum(map(math.exp, logits))) - logits[label]

    return total / len(u)


@torch.no_grad()
def test_joint_step_is_the_classifier_and_the_views_of_both_sentences():
    second = TokenEmbeddingCutoff(0.4)
    method = joint(second)
    batch = pairs_of(method)
    torch.manual_seed(3)
    step, logged = logged_step(method, batch)
    torch.manual_seed(3)
    u, v = vectors_of(method, batch["roles"])
    u_second, v_second = vectors_of(method, batch["roles"], second)
    assert not torch.allclose(u, u_second, atol=1e-2)

    classification = classified(method, u, v)
    contrast = nt_xent(u, u_second, 0.1) + nt_xent(v, v_second, 0.1)
    assert logged["train/classification"] == pytest.approx(classification, abs=1e-5)
    assert step["loss"].item() == pytest.approx(classification + 0.3 * contrast, abs=1e-5)
    assert torch.equal(step["embeddings"]["premise"]["vector"].double(), u)


PADDED = pytest.mark.parametrize("padded", [False, True], ids=["packed", "padded"])


def gradients_of(method):
    """The gradient of the classifier's loss for each token's embedding, sentence by sentence."""
    encoder = method.model.encoder
    template = encoder.template()
    embedded = []

    def keep(_layer, _inputs, output):
        output.retain_grad()
        embedded.append(output)

    handle = encoder.backbone.embeddings.register_forward_hook(keep)
    vectors = []
    for role in ("premise", "hypothesis"):
        for ids in pairs_of(method)["roles"][role].ids.tolist():
            bare = [number for number in ids if number != encoder.tokenizer.pad_id]
            row = torch.tensor([[*template.prefix, *bare, *template.suffix]])
            states = encoder.backbone(input_ids=row, output_hidden_states=True).hidden_states
            vectors.append((states[-1] + states[-2])[0].mean(0) / 2)

    handle.remove()
    u, v = torch.stack(vectors).chunk(2)
    method.loss(u, v, LABELS).backward()

    return [output.grad[0].double() for output in embedded]


@PADDED
def test_noise_is_a_step_of_one_length_along_the_gradient_of_each_token(padded):
    noise = AdversarialNoise(0.7)
    method = joint(noise, padded=padded)
    added = []
    change = noise.embeddings

    def watched(embeddings, mask):
        changed = change(embeddings, mask)
        rows = (changed - embeddings)[mask].detach().double()
        added.extend(rows.split(mask.sum(1).tolist()))

        return changed

    noise.embeddings = watched
    method.training_step(pairs_of(method), 0)
    first, second = added[: len(added) // 2], added[len(added) // 2 :]
    assert all(not rows.any() for rows in first), "the first pass only records"

    want = sorted(gradients_of(method), key=len)  # the encoder sorts by length
    assert len(want) == len(second) == 2 * len(SENTENCES)
    for gradient, rows in zip(want, second, strict=True):
        for token, row in zip(gradient, rows, strict=True):
            length = math.sqrt(sum(x * x for x in token.tolist()))
            scaled = [0.7 * x / length for x in token.tolist()]
            assert row.tolist() == pytest.approx(scaled, abs=2e-3)


def test_a_small_attack_raises_the_loss_by_the_length_of_the_gradient():
    method = joint(AdversarialNoise(1e-3))
    batch = pairs_of(method)
    rise = sum(float(g.norm(dim=1).sum()) for g in gradients_of(method))
    noise = method.noise
    u, v = vectors_of(method, batch["roles"], noise.watch())
    loss = method.loss(u.float(), v.float(), LABELS)
    with noise.attack(loss):
        attacked = vectors_of(method, batch["roles"], noise)

    increase = classified(method, *(x.detach() for x in attacked)) - classified(
        method, u.detach(), v.detach()
    )
    assert increase == pytest.approx(1e-3 * rise, rel=0.05)


def test_attack_leaves_the_gradient_of_the_whole_loss_and_nothing_behind():
    method = joint(AdversarialNoise(0.7))
    batch = pairs_of(method)
    gradients = []
    for _ in range(2):
        method.zero_grad()
        step = method.training_step(batch, 0)
        step["loss"].backward()
        gradients.append({name: p.grad.clone() for name, p in method.named_parameters()})

    assert all(torch.equal(gradients[0][name], gradient) for name, gradient in gradients[1].items())

    method.zero_grad()
    u, v = method.embed(batch).values()
    method.loss(u, v, LABELS).backward()
    weight = method.loss.classifier[0].weight.grad
    assert torch.allclose(gradients[0]["model.classifier.classifier.0.weight"], weight, atol=1e-6)
    assert torch.equal(method.model.embed(SENTENCES).vector, method.model.embed(SENTENCES).vector)


def test_attack_reaches_sentences_of_a_frozen_embedding_layer():
    contrast = {}
    for norm in (1e-6, 0.7):
        method = joint(AdversarialNoise(norm))
        method.model.encoder.backbone.embeddings.requires_grad_(False)
        step, logged = logged_step(method, pairs_of(method))
        step["loss"].backward()
        contrast[norm] = logged["train/contrast"]

    assert contrast[0.7] > contrast[1e-6] + 1e-3


@pytest.mark.parametrize(
    ("make_method", "message"),
    [
        (
            lambda: make(None, AdversarialNoise(1.0)),
            "AdversarialNoise needs the gradient of a loss",
        ),
        (lambda: joint(None, first=AdversarialNoise(1.0)), r"method\.first: must be null with"),
        (lambda: joint(AdversarialNoise(1.0), first=CUTOFF), r"method\.first: must be null with"),
        (lambda: joint(AdversarialNoise(1.0), chunk_size=2), r"set method\.chunk_size=null"),
        (lambda: AdversarialNoise(0.0), "norm: must be positive, got 0.0"),
    ],
)
def test_attack_that_cannot_be_is_an_error(make_method, message):
    with pytest.raises(ConfigError, match=message):
        make_method()
