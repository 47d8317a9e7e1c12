"""Plain sentences: SimCSE's million from Wikipedia, and two other corpora of running Wikipedia text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lightning_cse.data.corpora.simcse_nli import SIMCSE_SOURCE
from lightning_cse.data.corpora.spec import Corpus, CorpusFile, Table
from lightning_cse.data.corpora.tables import checked_sentence
from lightning_cse.errors import DataError

BLANK = "blank line"
HEADING = "heading"
SEPARATOR = "<::::>"
"""What stands between the two simple sentences of WikiSplit."""

ENDS = frozenset(".?!")
CLOSING = frozenset([")", "]", "}", "''", "\N{RIGHT DOUBLE QUOTATION MARK}", *ENDS])
"""Tokens that still belong to the sentence whose end they follow."""


def parse_sentences(text: str, path: str) -> Table:
    r"""Parse any file with one sentence a line, official or a user's own: column ``sentence``.

    Only ``\n`` and ``\r\n`` end a line, no other separator. Outer white space is removed, blank lines are left out and
    counted, repeated sentences stay.

    Raises:
        DataError: If there is no sentence.
    """
    return _parse(text, path, lambda line: [line], headings=False)


def parse_paragraphs(text: str, path: str) -> Table:
    """Parse a file of WikiText, a paragraph a line, tokenised, with ``<unk>`` for rare words: column ``sentence``.

    Headings, ``= Title =`` to ``= = = Title = = =``, and blank lines are left out and counted. All sentences of a
    paragraph have its line. Items of lists and tables are paragraphs like any other.

    Raises:
        DataError: If there is no sentence.
    """
    return _parse(text, path, split_sentences, headings=True)


def split_sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a tokenised paragraph, cut behind free-standing full stops and marks (? and !).

    Brackets and quotes that close there stay with the sentence, and so do signs that no word follows. ``"`` closes if
    it is the second, fourth, ... of the paragraph. There is no cut before a comma, semicolon, colon or
    small letter, where the sentence goes on.

    Example:
        >>> list(split_sentences('Dr. Ames said : " Go ! " to them . " Why ? " they asked .'))
        ['Dr. Ames said : " Go ! " to them .', '" Why ? " they asked .']
    """
    sentence: list[str] = []
    ended = False
    quotes = 0
    tokens = paragraph.split(" ")
    last_word = max((place for place, word in enumerate(tokens) if any(map(str.isalnum, word))), default=-1)
    for place, word in enumerate(tokens):
        quotes += word == '"'
        closes = word in CLOSING or (word == '"' and quotes % 2 == 0) or place > last_word
        if ended and not closes:
            if not (word[:1].islower() or word in {",", ";", ":"}):
                yield " ".join(sentence)
                sentence = []
            ended = False
        sentence.append(word)
        ended = ended or word in ENDS
    yield " ".join(sentence)


def parse_wiki_split(text: str, path: str) -> Table:
    """Parse a file of WikiSplit: a sentence, a tab, and two simple sentences that say the same, ``<::::>`` between.

    Raises:
        DataError: At the first fault, with file and line.
    """
    columns: dict[str, list[str]] = {"sentence": [], "simple1": [], "simple2": []}
    rows = text.rstrip("\r\n").split("\n")
    for line, row in enumerate(rows, start=1):
        where = f"{path}:{line}"
        cells = row.split("\t")
        if len(cells) != 2:
            raise DataError(f"{where}: {len(cells)} cells between tabs, 2 are needed")
        simple = cells[1].split(SEPARATOR)
        if len(simple) != 2:
            raise DataError(f"{where}: {len(simple)} simple sentences with {SEPARATOR} between, 2 are needed")
        for name, cell in zip(columns, [cells[0], *simple], strict=True):
            columns[name].append(checked_sentence(cell, name, where))
    return Table(dict(columns), list(range(1, len(rows) + 1)))


def _parse(text: str, path: str, cut: Callable[[str], Iterable[str]], *, headings: bool) -> Table:
    """Cut each line into sentences, but for blank lines and headings."""
    sentences: list[str] = []
    lines: list[int] = []
    dropped: dict[str, int] = {}
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        line = line.strip()
        reason = BLANK if not line else HEADING if headings and _is_heading(line) else None
        if reason is None:
            found = list(cut(line))
            sentences += found
            lines += [number] * len(found)
        else:
            dropped[reason] = dropped.get(reason, 0) + 1
    if not sentences:
        told = " and ".join(f"{count} {reason}{'' if count == 1 else 's'}" for reason, count in dropped.items())
        raise DataError(f"{path}: no sentence, only {told}")
    return Table({"sentence": sentences}, lines, dropped)


def _is_heading(line: str) -> bool:
    return line.startswith("= ") and line.endswith(" =") and line.strip("= ") != ""


WIKI1M = Corpus(
    name="wiki1m",
    title="SimCSE's million sentences from English Wikipedia (Gao et al. 2021)",
    files=(
        CorpusFile(
            split="train",
            path="simcse/wiki1m_for_simcse.txt",
            rows=1_000_000,
            sha256=None,  # the official file could not be had; the rows are counted
            remote="wiki1m_for_simcse.txt",
        ),
    ),
    parse=parse_sentences,
    licence="CC BY-SA 3.0 (Wikipedia)",
    prepare="downloads the official file and checks its row count",
    sources=(SIMCSE_SOURCE,),
)

WIKI1M_PART = Corpus(
    name="wiki1m_part",
    title="SimCSE's sentences from English Wikipedia, the first 11,914",
    files=(
        CorpusFile(
            split="train",
            path="simcse/wiki1m_for_simcse.part.txt",
            rows=11_914,
            sha256="423e56115d182ab21d4f413473f6f615888d140fec81f06a750297b5940aa190",
            remote="wiki1m_for_simcse.part.txt",
        ),
    ),
    parse=parse_sentences,
    licence="CC BY-SA 3.0 (Wikipedia)",
    prepare="fetches nothing: put the first 11,914 lines of wiki1m's file there, or name a folder that has them",
)

WIKI_SPLIT = Corpus(
    name="wiki_split",
    title="WikiSplit, sentences and two simpler ones for each (Botha et al. 2018); its small splits",
    files=(
        CorpusFile(
            split="train",  # of the 989,944 official training rows no stable plain file is known
            path="text/wiki-split/tune.tsv",
            rows=5000,
            sha256="67118f483438fc9f0ba12e63dc37f0eeff8bbad1873157509ced7e3e46582312",
            remote="tune.tsv",
        ),
        CorpusFile(
            split="dev",
            path="text/wiki-split/validation.tsv",
            rows=5000,
            sha256="63931ff45b7d95d60480bdcd466d69894fc02a0ec975cab8d0955e9b8cceb922",
            remote="validation.tsv",
        ),
        CorpusFile(
            split="test",
            path="text/wiki-split/test.tsv",
            rows=5000,
            sha256="88c3eff253f7ff3fcce9370bb54f750bc35f646c1b6d2a45df2b993c96670f7f",
            remote="test.tsv",
        ),
    ),
    parse=parse_wiki_split,
    licence="CC BY-SA 4.0",
    prepare="downloads three official files and checks digests and row counts",
    sources=(
        "https://raw.githubusercontent.com/google-research-datasets/wiki-split/80f5bddf42d1",
        "https://raw.githubusercontent.com/google-research-datasets/wiki-split/HEAD",
    ),
)

WIKITEXT2 = Corpus(
    name="wikitext2",
    title="WikiText-2 (Merity et al. 2017), sentences of its small splits",
    files=(
        CorpusFile(
            split="valid",
            path="text/wikitext-2/valid.txt",
            rows=7989,
            sha256="f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            remote="valid.txt",
        ),
        CorpusFile(
            split="test",
            path="text/wikitext-2/test.txt",
            rows=9313,
            sha256="d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            remote="test.txt",
        ),
    ),
    parse=parse_paragraphs,
    licence="CC BY-SA 3.0 (Wikipedia)",
    prepare="downloads two files that my-gpt carries, checks digests and row counts",
    sources=("https://raw.githubusercontent.com/sourcepirate/my-gpt/a0933fb223f5/data/wikitext-2",),
    aliases={"dev": "valid"},
)
