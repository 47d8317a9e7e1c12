"""Every kind of layout: a text gives these columns, and a bad one this message with its line."""

import io
import json
from collections import Counter

import pytest

from lightning_cse.data.declarations import CORPORA
from lightning_cse.data.formats import drawn_splits, rows_of, split_sentences
from lightning_cse.data.read import read_rows
from lightning_cse.data.rows import names_of
from lightning_cse.errors import DataError

INLI = "dataset,premise,implied_entailment,explicit_entailment,neutral,contradiction\n"
GLUE = "index\tsentence1\tsentence2\tgold_label\n"
LLMSKNOW = "Question,Answer,Origin\n"
SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\r"  # at which str.splitlines would split
TRIPLET = {"anchor": "A.", "positive": "P.", "negative": "N."}
QUADRUPLE = TRIPLET | {"intermediate": "I."}
AUTHORS = {"split": "aigen", "sentence": "A.", "5": "P.", "4": "I.", "3": "N.", "2": ""}
PLAIN = {"split": "wiki", "sentence": "Plain.", "5": "", "4": "", "3": ""}


def lines(*rows):
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def snli(label="neutral", premise="A dog."):
    return lines({"gold_label": label, "sentence1": premise, "sentence2": "None"})


def question(premise, hypothesis, answer="neutral"):
    text = f'For the statement, "{premise}", does the hypothesis "{hypothesis}" represent entailment, contradiction, or neutrality?'
    quoted = text.replace('"', '""')

    return f'"{quoted}",{answer},x\n'


def read(name, text):
    """Read a text in the layout of a file: corpus, or corpus and part of its path."""
    name, _, part = name.partition("/")
    corpus = CORPORA[name]
    file = next(file for file in corpus.files if part in file.path)
    layout = file.layout or corpus.layout

    options = layout.model_dump(exclude_unset=True)
    counts = Counter()
    lines = io.StringIO(text, newline="\n")
    rows = read_rows(
        lambda report: (layout.columns, rows_of(lines, report, **options)),
        "x",
        "x",
        identity=[],
        sha256="0",
        account=counts,
    )
    columns = {name: rows[name][:] for name in names_of(rows)}

    return columns, rows["line"][:], counts


# Layout, text, columns, the lines of the rows, what is left out


COLUMNS = [
    ("inli", INLI + 'circa," Two\nlines, ""quoted""\t",NA,None,n/a,nan\r\n,P,I,E,N,C\r\n\r\n',
     {"dataset": ["circa", ""], "premise": ['Two\nlines, "quoted"', "P"], "implied_entailment": ["NA", "I"], "explicit_entailment": ["None", "E"], "neutral": ["n/a", "N"], "contradiction": ["nan", "C"],},
     [2, 4], {}),
    ("snli", snli() + snli("-", ' He said "no". ').strip(),
     {"premise": ["A dog.", 'He said "no".'], "hypothesis": ["None", "None"], "label": ["neutral", "-"],},
     [1, 2], {}),
    ("snli_sample", '3\t3\t"A sign,\n""No dogs""."\tN/A\n1\t1\tA dog\'s nap.\tIt snores',
     {"premise": ['A sign,\n"No dogs".', "A dog's nap."], "hypothesis": ["N/A", "It snores"], "label": ["entailment", "neutral"],},
     [1, 3], {}),
    ("mnli_glue", GLUE + '0\t"Stay\tsaid "he \tentailment\r\n',
     {"premise": ['"Stay'], "hypothesis": ['said "he'], "label": ["entailment"],},
     [2], {}),
    ("mnli_llmsknow", LLMSKNOW + question("One,\ntwo ", "None") + question('"Go," he said', 'a "quoted" one ', "entailment",),
     {"premise": ["One,\ntwo", '"Go," he said'], "hypothesis": ["None", 'a "quoted" one'], "label": ["neutral", "entailment"],},
     [2, 4], {}),
    ("sts12", 'He said "no.\tNone \r\n\u2028One\x0btwo.\t"Three"\tx\ty\n',
     {"sentence1": ['He said "no.', "One\x0btwo."], "sentence2": ["None", '"Three"']},
     [1, 2], {}),
    ("trec", "NUM:date When ?\n\n\r\n", {"sentence": ["When ?"], "label": ["NUM"]}, [1], {}),
    ("sts12/gs", "\n4\r\n\n \n0.250\n\n", {"score": [4.0, 0.25]}, [2, 5], {"no gold score": 4}),
    ("trec", "NUM:date When was it : May ?\n", {"sentence": ["When was it : May ?"], "label": ["NUM"]}, [1], {}),
    ("wiki1m", "One,\ttwo. \r\n\n \t\nNo\nNo", {"sentence": ["One,\ttwo.", "No", "No"]}, [1, 4, 5], {"blank line": 2}),
    ("wiki1m", f"a{SEPARATORS}b\nc", {"sentence": [f"a{SEPARATORS}b", "c"]}, [1, 2], {}),
    ("wikitext2", " \n = Title = \n \n One @-@ two . Is it ? \n = = A = B = = \n = National \n = \n Two , \n",
     {"sentence": ["One @-@ two .", "Is it ?", "= National", "=", "Two ,"]},
     [4, 4, 6, 7, 8], {"blank line": 2, "heading": 2}),
    ("wiki_split", "A \"b , c .\tA \"b . <::::> C .\r\n'' d '' .\td .<::::>None\n",
     {"sentence": ['A "b , c .', "'' d '' ."], "simple1": ['A "b .', "d ."], "simple2": ["C .", "None"],},
     [1, 2], {}),
    ("ngcse", lines(QUADRUPLE | {"id": 3}, PLAIN, AUTHORS, PLAIN,),
     {"anchor": ["A."] * 2, "positive": ["P."] * 2, "intermediate": ["I."] * 2, "negative": ["N."] * 2,},
     [1, 3], {"plain sentence": 2}),
    ("ngcse/nli_nli", lines(TRIPLET, AUTHORS | {"3": ""}, {"split": "aigen", "sentence": "A.", "9": "N.", "10": "P.",},),
     {"anchor": ["A."] * 3, "positive": ["P."] * 3, "negative": ["N.", "I.", "N."],},
     [1, 2, 3], {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "columns", "at", "dropped"), COLUMNS)
def test_columns(name, text, columns, at, dropped):
    rows, lines_of_rows, counts = read(name, text)
    account = {f"dropped: {reason}": count for reason, count in dropped.items()}

    assert rows == columns
    assert list(rows) == list(columns)
    assert lines_of_rows == at
    assert counts == {"read": len(at) + sum(dropped.values()), **account}


@pytest.mark.parametrize(
    "sentences",
    [
        ["One .", "Two ?", "Three !", "Four"],
        ["What ? !", "Oh . . .", "Well ."],
        ["( One . )", "Two ."],
        ['He said " One . "', "She left ."],
        ["One .", '" Two . "', "Three ."],
        ['" One .', 'Two . "', "Three ."],
    ],
)
def test_split_sentences(sentences):
    assert list(split_sentences(" ".join(sentences))) == sentences


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("inli", INLI + "c,P,I,E,N,C\nc,P,I,E,N\n", ":3: 5 cells, but 6 columns"),
        ("inli", INLI + 'c,"P\n.",I,E,N,C\nc,P,I,E,N, \t\u00a0\n', ":4: contradiction is empty"),
        ("inli", INLI.replace("premise", "premiss") + "c,P,I,E,N,C\n", ":2: no column 'premise'; found: dataset, premiss"),
        ("snli", snli() + snli("maybe"), ":2: gold_label 'maybe' is not one of entailment, neutral, contradiction, -"),
        ("snli", snli(["neutral"]), ":1: gold_label ['neutral'] is not one of"),
        ("mnli_llmsknow", LLMSKNOW + "Why?,neutral,x\n", ":2: the form of 'Why?' is not known"),
        ("sts12", "A.\tB.\nOne.\tTwo.\tThree.\n", ":2: 3 cells, but 2 or 4 columns"),
        ("sts12/gs", "1\nfive\n", ":2: score 'five' is not a number between 0 and 5"),
        ("sts12/gs", "5.01\n", ":1: score '5.01' is not a number between 0 and 5"),
        ("trec", "HUM:ind Who ?\nNUM When ?", ":2: 'NUM When ?' is not of the form "),
        ("trec", "HUM:ind Who ?\n\nNUM:date When ?", ":2: '' is not of the form "),
        ("wikitext2", " \n = Title = \n \n", ": no rows"),
        ("ngcse", lines(AUTHORS | {"2": "M."}), ":1: 4 sentences under numbered keys"),
    ],
    ids=lambda value: value[:40],
)  # fmt: skip
def test_bad_rows_are_reported_with_their_line(name, text, fault):
    with pytest.raises(DataError) as caught:
        read(name, text)

    assert str(caught.value).startswith(f"x{fault}")
    assert len(str(caught.value)) < 500


def test_the_splits_are_those_of_the_authors_code():
    splits = drawn_splits(56_290)
    rows = {name: [row for row, split in enumerate(splits) if split == name] for name in {*splits}}
    sizes = {split: len(numbers) for split, numbers in rows.items()}

    assert sizes == {file.split: file.rows for file in CORPORA["impscore"].files}
    assert rows["test"][:6] == [9, 14, 24, 28, 51, 59]
    assert rows["dev"][:6] == [45, 76, 94, 99, 111, 120]
