"""LLM rows without their anchors."""

import hashlib
from collections import Counter

from lightning_cse.data import read_corpus
from lightning_cse.data.anchors import digest, with_anchors
from lightning_cse.data.rows import SourceFile, dataset_of, files_of, with_files

SENTENCES = ["The café is open.", "Rain fell.", "Nobody came."]


def test_rows_get_the_sentences_that_have_their_digests():
    digests = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in SENTENCES]
    assert [digest(text) for text in SENTENCES] == digests
    rows = dataset_of({"anchor": digests, "positive": ["a", "b", "c"]})
    rows = with_files(rows, [SourceFile("rows.jsonl", "/rows.jsonl", "1")])
    corpus = dataset_of({"anchor": [SENTENCES[2], "Another.", SENTENCES[0]]})
    corpus = with_files(corpus, [SourceFile("corpus.txt", "/corpus.txt", "2")])
    account: Counter[str] = Counter()
    joined = with_anchors(rows, [corpus], account)
    assert joined["anchor"][:] == [SENTENCES[0], SENTENCES[2]]
    assert joined["positive"][:] == ["a", "c"]
    assert account == {"dropped: anchor not in the corpora": 1}
    assert [file.name for file in files_of(joined)] == ["rows.jsonl", "corpus.txt"]


def test_kept_rows_have_their_anchors(real_data):
    account: Counter[str] = Counter()
    rows = read_corpus("ngcse_kept", "wiki_sts", real_data, account=account)
    assert len(rows) == 600
    assert account == {"read": 600}
    assert len(rows["anchor"][0].split()) > 3
