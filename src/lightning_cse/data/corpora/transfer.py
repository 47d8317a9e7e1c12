"""The transfer tasks of SentEval: sentences, or pairs of them, with a class to tell from their embeddings."""

from __future__ import annotations

from lightning_cse.data.corpora.nli import checked_label, labelled
from lightning_cse.data.corpora.sentences import parse_sentences
from lightning_cse.data.corpora.spec import Corpus, CorpusFile, Table
from lightning_cse.data.corpora.tables import checked_sentence, parse_tsv
from lightning_cse.errors import DataError

SOURCE = "https://raw.githubusercontent.com/robertoviegas/SimCSE/a0d98a537cef/SentEval/data/downstream"
DOWNLOADS = "downloads SentEval's files, which a fork of SimCSE carries, and checks"
NOT_STATED = "not stated; for research"
SENTIMENT = {"0": "negative", "1": "positive"}
PARAPHRASE = {"0": "other", "1": "paraphrase"}
TREC_CLASSES = {name: name for name in ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")}


def parse_sst2(text: str, path: str) -> Table:
    """Parse a file of SST-2: a sentence, a tab, 0 or 1; columns ``sentence`` and ``label`` (negative, positive).

    Raises:
        DataError: At the first fault, with file and line.
    """
    columns: dict[str, list[str]] = {"sentence": [], "label": []}
    rows = text.rstrip("\r\n").split("\n")
    for line, row in enumerate(rows, start=1):
        where = f"{path}:{line}"
        cells = row.removesuffix("\r").split("\t")
        if len(cells) != 2:
            raise DataError(f"{where}: {len(cells)} cell{'' if len(cells) == 1 else 's'} between tabs, 2 are needed")
        columns["sentence"].append(checked_sentence(cells[0], "sentence", where))
        columns["label"].append(checked_label(cells[1], where, SENTIMENT))
    return Table(dict(columns), list(range(1, len(rows) + 1)))


def parse_trec(text: str, path: str) -> Table:
    """Parse a file of TREC: ``COARSE:fine question``; columns ``sentence`` and ``label``, the coarse class.

    Raises:
        DataError: At the first fault, with file and line.
    """
    columns: dict[str, list[str]] = {"sentence": [], "label": []}
    rows = text.rstrip("\r\n").split("\n")
    for line, row in enumerate(rows, start=1):
        where = f"{path}:{line}"
        classes, _, sentence = row.partition(" ")
        coarse, colon, fine = classes.partition(":")
        if not (coarse and colon and fine):
            raise DataError(f"{where}: {classes!r} is not of the form COARSE:fine, such as NUM:date")
        columns["sentence"].append(checked_sentence(sentence, "sentence", where))
        columns["label"].append(checked_label(coarse, where, TREC_CLASSES))
    return Table(dict(columns), list(range(1, len(rows) + 1)))


def parse_mrpc(text: str, path: str) -> Table:
    """Parse a file of MRPC: tabs, a header, no quoting; columns ``sentence1``, ``sentence2``, ``label``.

    The label is ``paraphrase`` or ``other``.

    Raises:
        DataError: At the first fault, with file and line.
    """
    sentences = {"#1 String": "sentence1", "#2 String": "sentence2"}
    return labelled(parse_tsv(text, path, sentences=sentences, others={"Quality": "label"}), path, PARAPHRASE)


def _classes(name: str, *files: tuple[str, str, int, str]) -> tuple[CorpusFile, ...]:
    """Return the files of one split, of which each holds the sentences of one class: name, class, rows, digest."""
    return tuple(
        CorpusFile(split="all", path=f"transfer/{name}/{file}", rows=rows, sha256=sha256, remote=file, part=label)
        for file, label, rows, sha256 in files
    )


MR = Corpus(
    name="mr",
    title="MR, sentences of film reviews by sentiment (Pang and Lee 2005)",
    files=_classes(
        "MR",
        ("rt-polarity.pos", "positive", 5331, "34e5b0da2d491e46b700b00afe735aaae0962bcfe4f7f22b2d8077e714fa370f"),
        ("rt-polarity.neg", "negative", 5331, "c4ac36eaa8adc8ee31c31f69594bfbe68d83ef5b6db53f1f19b28c0be52f3999"),
    ),
    parse=parse_sentences,
    licence=NOT_STATED,
    prepare=f"{DOWNLOADS} digests",
    sources=(f"{SOURCE}/MR",),
    part_column="label",
    encoding="latin-1",  # as released; SentEval's files are ASCII
)

CR = Corpus(
    name="cr",
    # SentEval counts 3,775: it keeps two blank lines of each file as sentences without a word.
    title="CR, sentences of customer reviews by sentiment (Hu and Liu 2004)",
    files=_classes(
        "CR",
        ("custrev.pos", "positive", 2405, "91a20a4ffeb5d38a39a4087bb247e16538aff21e7d621ae59738379f39f21732"),
        ("custrev.neg", "negative", 1366, "ec94532766f6f962094841ab3bee2ad6f232f996c3756825a91e78bcc294750f"),
    ),
    parse=parse_sentences,
    licence=NOT_STATED,
    prepare=f"{DOWNLOADS} digests; of SentEval's 3,775 rows four are blank and dropped",
    sources=(f"{SOURCE}/CR",),
    part_column="label",
)

SUBJ = Corpus(
    name="subj",
    title="SUBJ, subjective and objective sentences on films (Pang and Lee 2004)",
    files=_classes(
        "SUBJ",
        ("subj.subjective", "subjective", 5000, "274c2ffe59c204dc4df779848561786f59a98cc20dda3cfdd7d9f76a4f730710"),
        ("subj.objective", "objective", 5000, "d8ccd43f1674f1c17e4ab717564e3561cfb719b0db4cfb19e5677427c68ff8a1"),
    ),
    parse=parse_sentences,
    licence=NOT_STATED,
    prepare=f"{DOWNLOADS} digests",
    sources=(f"{SOURCE}/SUBJ",),
    part_column="label",
)

MPQA = Corpus(
    name="mpqa",
    # SentEval counts 10,606: it keeps one blank line of pos and two of neg as sentences without a word.
    title="MPQA, phrases of news by polarity (Wiebe et al. 2005)",
    files=_classes(
        "MPQA",
        ("mpqa.pos", "positive", 3311, "7487dbb74c77383e60b292845495163a9e21fb70a4fdacdda933413e43163f0d"),
        ("mpqa.neg", "negative", 7292, "8da6e035fa4cea02f0555091096b29a6b3995ff0adf41fad25008dcee066b79e"),
    ),
    parse=parse_sentences,
    licence="GNU GPL: see the release",
    prepare=f"{DOWNLOADS} digests; of SentEval's 10,606 rows three are blank and dropped",
    sources=(f"{SOURCE}/MPQA",),
    part_column="label",
)

SST2 = Corpus(
    name="sst2",
    title="SST-2, sentences of film reviews by sentiment, in train phrases as well (Socher et al. 2013)",
    files=tuple(
        CorpusFile(
            split=split,
            path=f"transfer/SST/binary/sentiment-{split}",
            rows=rows,
            sha256=sha256,
            remote=f"sentiment-{split}",
        )
        for split, rows, sha256 in (
            ("train", 67349, "10a92a297ec38e262386e5a2713b4bc70e5d18ced88b7f54bd171a26e5b34ab5"),
            ("dev", 872, "9a6c7403b71a9b762158387afe4431253ae10cdfb2319b5275289f3766f48291"),
            ("test", 1821, "4fefd1cd67526cf87ebc7fafc3afc21cc7cfa6ae53b45e74f77f9456e3c62752"),
        )
    ),
    parse=parse_sst2,
    licence=NOT_STATED,
    prepare=f"{DOWNLOADS} digests",
    sources=(f"{SOURCE}/SST/binary",),
)

TREC = Corpus(
    name="trec",
    title="TREC, questions by what they ask for (Li and Roth 2002)",
    files=(
        CorpusFile(
            split="train",
            path="transfer/TREC/train_5500.label",
            rows=5452,
            sha256=None,  # goes round in Latin-1, as released, and in UTF-8: the rows are counted
            remote="train_5500.label",
        ),
        CorpusFile(
            split="test",
            path="transfer/TREC/TREC_10.label",
            rows=500,
            sha256="86ad53c8fc9d397ab2f4be7c967d8efb470b260140557d3e57afad69d1b88b76",
            remote="TREC_10.label",
        ),
    ),
    parse=parse_trec,
    licence=NOT_STATED,
    prepare=f"{DOWNLOADS} the row count of train and the digest of test",
    sources=(f"{SOURCE}/TREC",),
    encoding="latin-1",
)

MRPC = Corpus(
    name="mrpc",
    title="MRPC, pairs of news sentences, paraphrases or not (Dolan et al. 2004)",
    files=(
        CorpusFile(
            split="train",
            path="transfer/MRPC/msr_paraphrase_train.txt",
            rows=4076,
            sha256="60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
            remote="msr_paraphrase_train.txt",
        ),
        CorpusFile(
            split="test",
            path="transfer/MRPC/msr_paraphrase_test.txt",
            rows=1725,
            sha256="a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
            remote="msr_paraphrase_test.txt",
        ),
    ),
    parse=parse_mrpc,
    licence="Microsoft Research: see the release",
    prepare=f"{DOWNLOADS} digests",
    sources=(f"{SOURCE}/MRPC",),
)
