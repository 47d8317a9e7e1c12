"""STS-B, the STS Benchmark: sentence pairs with a similarity score from 0 to 5."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lightning_cse.data.corpora.spec import Corpus, CorpusFile, Hub, Table
from lightning_cse.data.corpora.tables import checked_score, checked_sentence
from lightning_cse.errors import DataError

HUB_SCALE = 5.0  # the hub's scores run from 0 to 1


def parse(text: str, path: str) -> Table:
    """Parse one official file: tabs, no header, no quoting; score in column 5, sentences in columns 6 and 7."""
    scores: list[float] = []
    first: list[str] = []
    second: list[str] = []
    rows = text.rstrip("\r\n").split("\n")
    for line, row in enumerate(rows, start=1):
        where = f"{path}:{line}"
        cells = row.rstrip("\r").split("\t")
        if not 7 <= len(cells) <= 9:
            raise DataError(f"{where}: {len(cells)} cells between tabs, 7 to 9 are needed")
        scores.append(checked_score(cells[4], "score", where, 0.0, 5.0))
        first.append(checked_sentence(cells[5], "sentence1", where))
        second.append(checked_sentence(cells[6], "sentence2", where))
    return Table({"sentence1": first, "sentence2": second, "score": scores}, list(range(1, len(rows) + 1)))


def to_official(rows: Iterable[Mapping[str, object]], path: str) -> bytes:
    """Write the hub's rows (``sentence1``, ``sentence2``, ``score`` from 0 to 1) in the official layout."""
    lines = []
    for number, row in enumerate(rows, start=1):
        where = f"{path}:{number}"
        absent = [name for name in ("sentence1", "sentence2", "score") if name not in row]
        if absent:
            raise DataError(f"{where}: missing column {absent[0]!r}; columns found: {', '.join(row)}")
        score = checked_score(row["score"], "score", where, 0.0, 1.0) * HUB_SCALE
        pair = [" ".join(checked_sentence(row[name], name, where).split()) for name in ("sentence1", "sentence2")]
        lines.append("\t".join(["hub", "hub", "hub", f"{number - 1:04d}", f"{score:.3f}", *pair]))
    return "".join(f"{line}\n" for line in lines).encode()


STSB = Corpus(
    name="stsb",
    title="STS-B, the STS Benchmark (Cer et al. 2017)",
    files=(
        CorpusFile(
            split="train",
            path="STS/STSBenchmark/sts-train.csv",
            rows=5749,
            sha256="0f71910b59aa1ad973c5897f0791f3b0965a92b8f82b1a95f3eea9f4162fda82",
            remote="sts-train.csv",
        ),
        CorpusFile(
            split="dev",
            path="STS/STSBenchmark/sts-dev.csv",
            rows=1500,
            sha256="5d7e944d8b02734b07bfdb5df67db3420c64bed153fcaa1ba47ad03480cf4234",
            remote="sts-dev.csv",
        ),
        CorpusFile(
            split="test",
            path="STS/STSBenchmark/sts-test.csv",
            rows=1379,
            sha256="affe45928a66ee5a708531233c95b7dacbbdc57f974f002a3d32ea0180cf816a",
            remote="sts-test.csv",
        ),
    ),
    parse=parse,
    licence="mixed, a licence a source: see LICENSE.txt of the release",
    prepare="fetches the pairs from the Hugging Face hub, checks row counts, writes the official layout",
    hub=Hub(
        id="sentence-transformers/stsb",
        revision="ab7a5ac0e35aa22088bdcf23e7fd99b220e53308",
        splits={"train": "train", "dev": "validation", "test": "test"},
        to_official=to_official,
    ),
)
