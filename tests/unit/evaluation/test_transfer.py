"""Transfer: folds and choices by a loop over SentEval's classifiers, limits, order and errors."""

from collections import Counter

import numpy as np
import pytest
import torch
from oracles import Numbers, result_of, senteval_classifier

from lightning_cse.data import sample_dir
from lightning_cse.data.rows import dataset_of, names_of
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.evaluation import Transfer
from lightning_cse.evaluation import transfer as module

CORPORA = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
WIDTH = 4


class Words:
    """A sentence's features stand in it: ``word word 0.5 -1 ...``, the last numbers of it."""

    def embed(self, sentences):
        return PointEmbedding(
            torch.tensor([[float(word) for word in s.split()[-WIDTH:]] for s in sentences])
        )

    def features(self, embedding):
        return embedding.vector


class Hashed(Words):
    """Random features, the same for the same sentence."""

    def embed(self, sentences):
        seeds = [sum(map(ord, sentence)) for sentence in sentences]
        return PointEmbedding(
            torch.tensor(np.array([np.random.RandomState(s).randn(6) for s in seeds])).float()
        )


def table(rows, classes, seed, *, pairs=False):
    """Return sentences of one to five words and ``WIDTH`` numbers, with labels that depend on
    them.
    """
    random = np.random.RandomState(seed)
    names = ("sentence1", "sentence2") if pairs else ("sentence",)
    numbers = random.randn(len(names), rows, WIDTH).round(3)
    signal = np.abs(numbers[0] - numbers[1]).sum(1) - 4 if pairs else numbers[0].sum(1)
    noisy = signal + random.randn(rows)
    indices = np.floor(noisy / 1.5 + len(classes) / 2).astype(int).clip(0, len(classes) - 1)
    columns = {"label": [classes[index] for index in indices]}
    for name, side in zip(names, numbers.tolist(), strict=True):
        sentences = []
        for vector in side:
            words = ["w"] * random.randint(1, 6)
            sentences.append(" ".join([*words, *map(str, vector)]))

        columns[name] = sentences

    return dataset_of(columns)


def evaluated(monkeypatch, corpus, tables, **options):
    monkeypatch.setattr(module, "read_corpus", lambda name, split, folder: tables[split])
    task = Transfer(data_dir="", corpus=corpus, **options)  # type: ignore[arg-type]
    return result_of(task, Words())


def sides(rows):
    return [name for name in names_of(rows) if name != "label"]


def senteval_order(rows, classes):
    """Return row numbers sorted by number of words, then class."""

    def key(row):
        counts = [len(str(rows[row][side]).split()) for side in sides(rows)]
        return (*counts, classes.index(rows[row]["label"]))

    return sorted(range(len(rows)), key=key)


def numbers(rows, classes, order):
    """Return features and labels in an order."""
    vectors = [Words().embed(rows[side][:]).vector.double().numpy() for side in sides(rows)]
    features = vectors[0]
    if len(vectors) == 2:
        a, b = vectors
        features = np.concatenate([abs(a - b), a * b], axis=1)

    labels = np.array([classes.index(label) for label in rows["label"]])

    return features[order], labels[order]


def best_l2(x, y, folds):
    accuracies = [
        np.mean([(predicted(x, y, fold, l2, fold[1]) == y[fold[1]]).mean() for fold in folds])
        for l2 in module.L2
    ]
    return module.L2[int(np.argmax(np.round(100 * np.array(accuracies), 2)))]


def predicted(x, y, fold, l2, rows):
    """Return the classes of rows by a classifier fitted on a fold (train, dev or None)."""
    features, labels = torch.from_numpy(x), torch.from_numpy(y)
    model, _ = senteval_classifier(features, labels, fold, l2, len(set(y)))

    return model(features[rows]).argmax(dim=1).numpy()


def stratified(y, folds=10):
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(folds, shuffle=True, random_state=1111).split(np.zeros(len(y)), y))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("corpus", "classes"), [("mr", ("negative", "positive")), ("subj", ("subjective", "objective"))]
)
def test_nested_folds_against_a_loop(monkeypatch, corpus, classes):
    rows = table(36, classes, seed=1)
    order = senteval_order(rows, classes)
    x, y = numbers(rows, classes, order)
    accuracies, answers = [], np.zeros(len(y), dtype=int)
    for train, test in stratified(y):
        folds = [(train[inner], train[dev]) for inner, dev in stratified(y[train])]
        answers[test] = predicted(x, y, (train, None), best_l2(x, y, folds), test)
        accuracies.append((answers[test] == y[test]).mean())

    result = evaluated(monkeypatch, corpus, {"all": rows})
    assert result.metrics == {"accuracy": pytest.approx(np.mean(accuracies))}
    assert 0.5 < np.mean(accuracies) < 1
    by_row = {row: classes[k] for row, k in zip(order, answers, strict=True)}
    assert result.predictions == {
        "row": list(range(36)),
        "label": rows["label"][:],
        "prediction": [by_row[row] for row in range(36)],
    }


def test_a_given_dev_split_chooses(monkeypatch):
    classes = ("negative", "positive")
    tables = {
        "train": table(60, classes, 4),
        "dev": table(40, classes, 5),
        "test": table(50, classes, 6),
    }
    parts = [numbers(rows, classes, senteval_order(rows, classes)) for rows in tables.values()]
    x, y = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    train, dev, test = np.split(np.arange(150), [60, 100])
    l2 = best_l2(x, y, [(train, dev)])
    answers = predicted(x, y, (train, dev), l2, test)
    result = evaluated(monkeypatch, "sst2", tables)
    assert result.metrics == {"accuracy": pytest.approx((answers == y[test]).mean())}


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_sample_of_every_corpus_is_read_limited_and_classified(corpus):
    task = Transfer(data_dir=str(sample_dir()), corpus=corpus, rows=12)
    assert (task.splits, task.metrics) == (("test",), ("accuracy",))
    assert task.sentences("dev") == []
    result = result_of(task, Hashed())
    assert 0 <= result.metrics["accuracy"] <= 1
    assert len(result.predictions["row"]) == len(list(task.tables.values())[-1])
    for rows in Transfer(data_dir=str(sample_dir()), corpus=corpus, rows=3).tables.values():
        assert set(Counter(rows["label"]).values()) == {3}

    assert not task.suits(Numbers()), "a model without features"
