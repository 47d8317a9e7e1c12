"""SimCSE's supervised training set: ready-made triplets out of SNLI and MultiNLI."""

from __future__ import annotations

from lightning_cse.data.corpora.spec import Corpus, CorpusFile, Table
from lightning_cse.data.corpora.tables import parse_csv

SIMCSE_SOURCE = "https://huggingface.co/datasets/princeton-nlp/datasets-for-simcse/resolve/main"
COLUMNS = {"sent0": "premise", "sent1": "entailment", "hard_neg": "contradiction"}
LICENCE = "MIT for the choice of triplets; the text as SNLI (CC BY-SA 4.0) and MultiNLI (mixed)"


def parse(text: str, path: str) -> Table:
    """Parse one official file: comma-separated, a header, three sentences a row, columns renamed to their roles.

    Differs: SimCSE reads the words ``None`` and ``NA`` as missing and puts a blank for them; here they are sentences.

    Raises:
        DataError: At the first fault, with file and line.
    """
    table = parse_csv(text, path, sentences=tuple(COLUMNS))
    return table._replace(columns={ours: table.columns[name] for name, ours in COLUMNS.items()})


SIMCSE_NLI = Corpus(
    name="simcse_nli",
    title="SimCSE's triplets from SNLI and MultiNLI (Gao et al. 2021)",
    files=(
        CorpusFile(
            split="train",
            path="simcse/nli_for_simcse.csv",
            rows=275_601,
            sha256=None,  # the official file could not be had; the rows are counted
            remote="nli_for_simcse.csv",
        ),
    ),
    parse=parse,
    licence=LICENCE,
    prepare="downloads the official file and checks its row count",
    sources=(SIMCSE_SOURCE,),
)

SIMCSE_NLI_HEAD = Corpus(
    name="simcse_nli_head",
    title="SimCSE's triplets, the first nine",
    files=(
        CorpusFile(
            split="train",
            path="simcse/nli_for_simcse.head.csv",
            rows=9,
            sha256="a8177c6e1c1022187b8edba76b9587e4983239339efee0dae4dc0e64742fd45e",
            remote="nli_for_simcse.csv",
        ),
    ),
    parse=parse,
    licence=LICENCE,
    prepare="downloads the cut-off file that Prompt-BERT carries, checks its digest and row count",
    sources=("https://raw.githubusercontent.com/archfool/Prompt-BERT/7675c63f2c42/data",),
)
