"""Every layout: a text gives these columns, and a bad one this message with its line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lightning_cse.data.corpora import CORPORA, read_corpus
from lightning_cse.data.parsers import READERS, drawn_splits, parse, split_sentences
from lightning_cse.errors import DataError

INLI = ",dataset,premise,implied_entailment,explicit_entailment,neutral,contradiction\n"
SICK = [
    *(
        "pair_ID",
        "sentence_A",
        "sentence_B",
        "entailment_label",
        "relatedness_score",
        "entailment_AB",
        "entailment_BA",
    ),
    *(
        "sentence_A_original",
        "sentence_B_original",
        "sentence_A_dataset",
        "sentence_B_dataset",
        "SemEval_set",
    ),
]
SEMEVAL = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
GLUE = "index\tsentence1_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
NYU = "sentence1\tsentence2\tlabel\tgenre\n"
LLMSKNOW = "Question,Answer,Origin\n"
MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\r"  # which str.splitlines would cut at
PAIRS = "pos_implicit,pos_explicit,neg_implicit,neg_explicit\n"
OURS = {"anchor": "A.", "positive": "P.", "intermediate": "I.", "negative": "N."}
OURS_NLI = {"anchor": "A.", "positive": "P.", "negative": "N."}
THEIRS = {"split": "aigen", "sentence": "A.", "5": "P.", "4": "I.", "3": "N.", "2": "", "1": ""}
PLAIN = {"split": "wiki", "sentence": "Plain.", "5": "", "4": "", "3": ""}


def sick(*rows: dict[str, str]) -> str:
    row = dict.fromkeys(SICK, "x") | {"entailment_label": "ENTAILMENT", "relatedness_score": "4.5"}
    row |= {"entailment_AB": "A_entails_B", "entailment_BA": "B_neutral_A", "SemEval_set": "TRAIN"}
    return "".join(
        "\t".join(cells) + "\r\n"
        for cells in [SICK, *((row | changed).values() for changed in rows)]
    )


def lines(*rows: object) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def snli(
    label: object = "neutral",
    premise: object = "A dog.",
    hypothesis: object = "None",
    **more: object,
) -> str:
    return lines({"gold_label": label, "sentence1": premise, "sentence2": hypothesis, **more})


def question(premise: str, hypothesis: str, answer: str = "neutral") -> str:
    text = f'For the statement, "{premise}", does the hypothesis "{hypothesis}" represent entailment, contradiction, '
    return '"' + f"{text}or neutrality?".replace('"', '""') + f'",{answer},mnli\n'


def read(name: str, text: str) -> tuple[dict[str, list[Any]], list[int], dict[str, int]]:
    """Read a text in the layout of a file: corpus, or corpus and part of its path."""
    corpus, _, path = name.partition("/")
    return parse(
        text, "x", **next(file for file in CORPORA[corpus].files if path in file.path).layout
    )


# What is read: layout, text, columns, the lines of the rows, what is left out


@pytest.mark.parametrize(
    ("name", "text", "columns", "at", "dropped"),
    [
        ("inli",
         INLI + '0,circa," Two\nlines, ""quoted""\t",NA,None,n/a,nan\r\n1,,P,I,E,N,C\r\n\r\n',
         {"dataset": ["circa", ""], "premise": ['Two\nlines, "quoted"', "P"], "implied_entailment": ["NA", "I"],
          "explicit_entailment": ["None", "E"], "neutral": ["n/a", "N"], "contradiction": ["nan", "C"]},
         [2, 4], {}),
        ("simcse_nli",
         "hard_neg,note,sent1,sent0\r\nNone,x,A man.  ,a\r\n",
         {"premise": ["a"], "entailment": ["A man."], "contradiction": ["None"]},
         [2], {}),
        ("snli",
         snli(pairID="1n", other=["x"]) + snli("-", ' He said "no". ', "n/a").strip(),
         {"premise": ["A dog.", 'He said "no".'], "hypothesis": ["None", "n/a"], "label": ["neutral", "-"]},
         [1, 2], {}),
        ("snli_senteval/s1", "A dog naps . \r\n`` no ''", {"premise": ["A dog naps .", "`` no ''"]}, [1, 2], {}),
        ("snli_senteval/labels", "neutral\nentailment\n", {"label": ["neutral", "entailment"]}, [1, 2], {}),
        ("snli_sample",
         '3\t3\t"A sign,\n""No dogs""."\tN/A\n1\t1\tA dog\'s nap.\tIt snores\n2\t2\tOne.\tTwo.',
         {"premise": ['A sign,\n"No dogs".', "A dog's nap.", "One."], "hypothesis": ["N/A", "It snores", "Two."],
          "label": ["entailment", "neutral", "contradiction"]},
         [1, 3, 4], {}),
        ("mnli_glue",
         GLUE + '0\t(x "\t"Stay\tsaid "he \tneutral\tentailment\r\n',
         {"premise": ['"Stay'], "hypothesis": ['said "he'], "label": ["entailment"]},
         [2], {}),
        ("mnli_llmsknow",
         LLMSKNOW + question("One,\ntwo ", "None") + question('"Leave it," he said', 'a "quoted" one ', "entailment")
         + question("does the hypothesis hold", 'in the statement, "yes", it does') * 2,
         {"premise": ["One,\ntwo", '"Leave it," he said', *["does the hypothesis hold"] * 2],
          "hypothesis": ["None", 'a "quoted" one', *['in the statement, "yes", it does'] * 2],
          "label": ["neutral", "entailment", "neutral", "neutral"]},
         [2, 4, 5, 6], {}),
        ("sick",
         sick({"sentence_A": "A man ", "sentence_A_original": 'A man, "tall'}, {"SemEval_set": "TEST"}),
         {"premise": ["A man", "x"], "hypothesis": ["x", "x"], "label": ["entailment"] * 2, "score": [4.5, 4.5],
          "entailment_ab": ["A_entails_B"] * 2, "entailment_ba": ["B_neutral_A"] * 2, "semeval_set": ["TRAIN", "TEST"]},
         [2, 3], {}),
        ("sick_semeval",
         SEMEVAL + '7\tA "man\tNone\t1\tENTAILMENT\r\n8\tA\tB\t4.885\tCONTRADICTION\r\n',
         {"premise": ['A "man', "A"], "hypothesis": ["None", "B"], "label": ["entailment", "contradiction"],
          "score": [1.0, 4.885]},
         [2, 3], {}),
        ("sts12",
         'He said "no.\tNone \r\n\u2028One\x0btwo.\t"Three"\tx\ty\n',
         {"sentence1": ['He said "no.', "One\x0btwo."], "sentence2": ["None", '"Three"']},
         [1, 2], {}),
        ("sts12/gs", "\n4\r\n\n \n0.250\n\n", {"score": [4.0, 0.25]}, [2, 5], {"no gold score": 4}),
        ("stsb",
         'a\tb\tc\td\t5.000\tOne.\tTwo.\ne\tf\tg\th\t0.25\tHe said "no.\tNone\tlicence\tsource',
         {"sentence1": ["One.", 'He said "no.'], "sentence2": ["Two.", "None"], "score": [5.0, 0.25]},
         [1, 2], {}),
        ("sst2",
         "a fine film \t1\r\n`` dull '' \t0\n",
         {"sentence": ["a fine film", "`` dull ''"], "label": ["positive", "negative"]},
         [1, 2], {}),
        ("trec",
         "NUM:date When was it : May ?\nHUM:ind Who ?\n",
         {"sentence": ["When was it : May ?", "Who ?"], "label": ["NUM", "HUM"]},
         [1, 2], {}),
        ("wiki1m",
         "One,\ttwo. \r\n\n \t\nNo\nNo",
         {"sentence": ["One,\ttwo.", "No", "No"]},
         [1, 4, 5], {"blank line": 2}),
        ("wiki1m", f"a{SEPARATORS}b\nc", {"sentence": [f"a{SEPARATORS}b", "c"]}, [1, 2], {}),
        ("wikitext2",
         " \n = Title = \n \n One @-@ two <unk> . Is it ? \n = = A = B = = \n = National \n = \n q = \n Two , \n",
         {"sentence": ["One @-@ two <unk> .", "Is it ?", "= National", "=", "q =", "Two ,"]},
         [4, 4, 6, 7, 8, 9], {"blank line": 2, "heading": 2}),
        ("wiki_split",
         "A \"b , c .\tA \"b . <::::> C .\r\n'' d '' .\td .<::::>None\n",
         {"sentence": ['A "b , c .', "'' d '' ."], "simple1": ['A "b .', "d ."], "simple2": ["C .", "None"]},
         [1, 2], {}),
        ("ngcse",
         lines(OURS | {"id": 3, "anchor": " A. "}, PLAIN, THEIRS, PLAIN),
         {"anchor": ["A."] * 2, "positive": ["P."] * 2, "intermediate": ["I."] * 2, "negative": ["N."] * 2},
         [1, 3], {"plain sentence": 2}),
        ("ngcse/nli_nli",
         lines(OURS_NLI, THEIRS | {"3": ""}, {"split": "aigen", "sentence": "A.", "9": "N.", "10": "P."}),
         {"anchor": ["A."] * 3, "positive": ["P."] * 3, "negative": ["N.", "I.", "N."]},
         [1, 2, 3], {}),
    ],
)  # fmt: skip
def test_columns(
    name: str, text: str, columns: dict[str, list[Any]], at: list[int], dropped: dict[str, int]
) -> None:
    found = read(name, text)
    assert found == (columns, at, dropped)
    assert list(found[0]) == list(columns)


def test_every_reader_is_read_with() -> None:
    used = {file.layout["reader"] for corpus in CORPORA.values() for file in corpus.files}
    assert used == set(READERS)


@pytest.mark.parametrize(
    "sentences",
    [
        ["One .", "Two ?", "Three !", "Four"],
        ["In the U.S. , H. Ames paid 1 @.@ 5 .", "<unk> too ."],
        ["What ? !", "Oh . . .", "Well ."],
        ["( One . )", "Two ."],
        ['He said " One . "', "She left ."],
        ["One .", '" Two . "', "Three ."],
        ['" One .', 'Two . "', "Three ."],
        ["Yahoo ! is a name ."],
        ["Inc . , Ltd . ; etc ."],
        ["He said ' One . ' \""],
        ["' One . ''", "Two ."],
    ],
    ids=lambda sentences: sentences[0],
)
def test_where_a_paragraph_is_cut(sentences: list[str]) -> None:
    assert list(split_sentences(" ".join(sentences))) == sentences


# Faults: layout, text, how the message starts after the file


def faults_of(
    name: str, text: Callable[[Any], str], line: int, cases: list[tuple[Any, str]]
) -> list[tuple[str, ...]]:
    return [(name, text(bad), f":{line}: {fault}") for bad, fault in cases]


NO_FORM = "is not of the form sentence, tab, simple sentence <::::> simple sentence"


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("inli", INLI + "0,c,P,I,E,N,C\n0,c,P,I,E,N\n", ":3: 6 cells, the header has 7 columns"),
        ("inli", INLI + '0,c,"P\n.",I,E,N,C\n0,c,P,I,E,N, \t\u00a0\n', ":4: contradiction is empty (white space only)"),
        ("inli", INLI + "0,c,P,I,E,N,C\n\n0,c,P,I,E,N,C\n", ":3: blank line"),
        ("inli", INLI + '0,c,"never closed,I,E,N,C\n', ":2: the row that starts here is not valid CSV: unexpected end"),
        ("inli", INLI + '0,c,"closed" early,I,E,N,C\n', ":2: the row that starts here is not valid CSV: ',' expected"),
        ("inli", INLI, ": a header but no rows"),
        ("inli", "\n\n", ": no header and no rows"),
        ("inli", INLI.replace("premise", "premiss") + "0,c,P,I,E,N,C\n",
         ":1: missing column 'premise' - did you mean 'premiss'?; columns found: (unnamed), dataset, "
         "premiss, implied_entailment, explicit_entailment, neutral, contradiction"),
        ("inli", "dataset,premise\n", ":1: missing columns 'implied_entailment', 'explicit_entailment', 'neutral', 'c"),
        ("inli", INLI.replace("neutral", "premise"), ":1: column 'premise' appears twice"),
        ("inli", INLI + "0,c,P,I,E,N,C\n" + INLI, ":3: repeated header; were two files concatenated? Remove this line"),
        ("snli", snli() + snli("maybe"), ":2: gold_label 'maybe' is not one of entailment, neutral, contradiction, -"),
        ("snli", snli() * 2 + '{"gold_label": "neutral"', ":3: not valid JSON: Expecting ',' delimiter at column 25"),
        ("snli", lines({"gold_label": "-", "sentence1": "A"}), ":1: missing key 'sentence2'; keys found: gold_label, "),
        ("snli", snli(premise="half \ud83d of"), ":1: sentence1 has a lone surrogate, '\\ud83d' at position 5, which is"),
        ("snli", '{"gold_label": ' + "[" * 5000 + "]" * 5000 + "}\n", ":1: the JSON cannot be read: maximum recursion"),
        ("snli", '{"gold_label": 1' + "0" * 5000 + "}\n", ":1: the JSON cannot be read: Exceeds the limit"),
        *faults_of("snli", lambda signs: snli(premise=f" {signs}\n"), 1, [
            (signs, "sentence1 is empty (no visible character)")
            for signs in ("\u200b\u200d", "\ufeff", "\x07", "\ufe0f", "\u3164", "\u2800 \u115f")
        ]),
        ("snli_senteval/s1", "A . \n \nC . \n", ":2: premise is empty"),
        ("snli_senteval/labels", "neutral\nentailmen\n", ":2: label 'entailmen' is not one of entailment, neutral"),
        ("snli_sample", '1\t1\t"Two\nlines."\tD.\n0\t0\tA.\tB.', ":3: label '0' is not one of 1, 2, 3"),
        ("snli_sample", "1\t1\tA.", ":1: 3 cells between tabs, 4 are needed"),
        ("mnli_glue", GLUE + "0\tx\tA\tB\tC\tneutral\tneutral\n", ":2: 7 cells between tabs, the header has 6 columns"),
        ("mnli_nyu", NYU + "A\tB\tneutral\tx\n" + NYU, ":3: repeated header; were two files concatenated?"),
        *faults_of("mnli_llmsknow", lambda bad: LLMSKNOW + question("A\nmore", "B") + bad, 4, [
            (question("A", "B").replace("statement", "sentence"), "the Question 'For the sentence, \"A\""),
            (question("A", "B").replace("?", "? Answer."), "the Question 'For the statement"),
            (question('A", does the hypothesis "C', "B"), "the Question 'For the statement"),
            (question(" ", "B"), "premise is empty"),
            (",neutral,x\n", "Question is empty"),
            (question("A", "B", "-"), "Answer '-' is not one of entailment, neutral, contradiction"),
        ]),
        *faults_of("sick", lambda bad: sick({}, bad), 3, [
            ({"entailment_label": "neutral"}, "entailment_label 'neutral' is not one of ENTAILMENT, NEUTRAL, CONT"),
            ({"relatedness_score": "4,5"}, "relatedness_score '4,5' is not a number"),
            ({"relatedness_score": "0.5"}, "relatedness_score '0.5' is not between 1 and 5"),
            ({"entailment_AB": "A_entail_B"}, "entailment_AB 'A_entail_B' is not one of A_entails_B, A_neutral_B, "),
            ({"sentence_B": "A\tman"}, "13 cells between tabs, the header has 12 columns"),
        ]),
        ("sts12", "A.\tB.\nOne.\tTwo.\tThree.\n", ":2: 3 cells between tabs, 2 or 4 are needed"),
        ("sts12/gs", "1\nfive\n", ":2: score 'five' is not a number"),
        ("sts12/gs", "5.01\n", ":1: score '5.01' is not between 0 and 5"),
        ("sts12/gs", "\n\n", ": no row, only 2 no gold scores"),
        ("stsb", "a\tb\tc\td\t5.0\tOne.", ":1: 6 cells between tabs, 7 or 8 or 9 are needed"),
        ("trec", "HUM:ind Who ?\nNUM When ?", ":2: 'NUM When ?' is not of the form COARSE:fine question, such as NUM:date"),
        ("trec", "NUN:date When ?", ":1: label 'NUN' is not one of ABBR, DESC, ENTY, HUM, LOC, NUM - did you mean 'NUM'?"),
        ("mrpc", f"{MRPC}2\t7\t8\tA\tB\n", ":2: Quality '2' is not one of 0, 1"),
        ("wiki1m", "\n \r\n\u2028\n", ": no row, only 3 blank lines"),
        ("wikitext2", " \n = Title = \n \n", ": no row, only 2 blank lines and 1 heading"),
        ("wiki_split", "a\tb <::::> c\na b <::::> c\n", f":2: 'a b <::::> c' {NO_FORM}"),
        ("wiki_split", "a\tb <::::> c <::::> d\n", f":1: 'a\\tb <::::> c <::::> d' {NO_FORM}"),
        ("wiki_split", "a\t<::::> c\n", ":1: simple1 is empty"),
        *faults_of("ngcse", lambda bad: lines(OURS, bad, OURS), 2, [
            ("{", "not valid JSON: Expecting property name enclosed in double quotes at column 2"),
            ([1], "expected a JSON object, got list"),
            ({"positive": "P.", "negative": "N."}, "missing key 'anchor'; keys found: positive, negative"),
            ({"anchor": "A.", "postive": "P.", "negative": "N."},
             "missing key 'positive' - did you mean 'postive'?; keys found: anchor, postive, negative"),
            (OURS | {"intermediate": None}, "intermediate is empty (null)"),
            (OURS_NLI, "no intermediate sentence, but every row of this file needs one (STS pattern)"),
            ({"sentence": "A."}, "missing key 'anchor', or 'split' beside 'sentence'; keys found: sentence"),
            ({"split": "aigen", "sentence": "A.", "5": "P.", "4": ""}, "1 sentences under numbered keys (5); an LLM row"),
            (THEIRS | {"2": "M."}, "4 sentences under numbered keys (5, 4, 3, 2); an LLM row has 3 (STS pattern) or 2"),
            (THEIRS | {"4": None}, "'4' is empty (null)"),
        ]),
        ("ngcse/nli_nli", lines(OURS), ":1: an intermediate sentence, but no row of this file may have one (NLI pattern)"),
    ],
    ids=lambda value: value[:40],
)  # fmt: skip
def test_faults(name: str, text: str, fault: str) -> None:
    with pytest.raises(DataError) as caught:
        read(name, text)
    assert str(caught.value).startswith(f"x{fault}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("snli", snli(premise=["x" * 100_000])),
        ("snli", lines({"x" * 100_000: 1})),
        ("sts12/gs", "x" * 100_000),
    ],
    ids=lambda value: value[:20],
)
def test_an_error_shows_at_most_the_start_of_a_cell(name: str, text: str) -> None:
    with pytest.raises(DataError) as caught:
        read(name, text)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", SICK)
def test_only_columns_that_are_used_are_needed(name: str) -> None:
    text = sick({}).replace(name, "other", 1)
    if name == "pair_ID" or name.endswith(("_original", "_dataset")):
        assert read("sick", text)[1] == [2]
    else:
        with pytest.raises(DataError, match=f"^x:1: missing column '{name}'"):
            read("sick", text)


# ImpScore's splits


def test_the_splits_are_those_of_the_authors_code() -> None:
    splits = drawn_splits(56_290)
    sizes = {split: splits.count(split) for split in ("train", "dev", "test")}
    assert sizes == {"train": 50_661, "dev": 2_814, "test": 2_815}
    assert sizes == {file.split: file.rows for file in CORPORA["impscore"].files}
    assert [row for row, split in enumerate(splits) if split == "test"][:6] == [
        9,
        14,
        24,
        28,
        51,
        59,
    ]
    assert [row for row, split in enumerate(splits) if split == "dev"][:6] == [
        45,
        76,
        94,
        99,
        111,
        120,
    ]


def test_a_drawn_split_keeps_the_order_of_the_file(
    tmp_path: Path, put: Callable[..., Path]
) -> None:
    path = put(
        "ImpScore/all_data.csv", PAIRS + "".join(f"i{n}, e{n} ,i{n},e{n + 1}\n" for n in range(60))
    )
    rows = {split: read_corpus("impscore", split, tmp_path) for split in CORPORA["impscore"].splits}
    assert [len(table) for table in rows.values()] == [54, 3, 3]
    numbers = {
        split: [int(name[1:]) for name in table.column("pos_implicit")]
        for split, table in rows.items()
    }
    assert all(found == sorted(found) for found in numbers.values())
    assert sorted(n for found in numbers.values() for n in found) == list(range(60))
    test, first = rows["test"], numbers["test"][0]
    assert [test[0][name] for name in test.names] == [
        f"i{first}",
        f"e{first}",
        f"i{first}",
        f"e{first + 1}",
        "test",
    ]
    assert test.where(0) == f"{path}:{first + 2}"
    put("ImpScore/all_data.csv", PAIRS + "a,b,a,c\n" * 19)
    with pytest.raises(
        DataError, match=r"all_data\.csv: no row of the split 'dev': none has split = dev$"
    ):
        read_corpus("impscore", "dev", tmp_path)
