"""STS12 to STS16, the shared tasks of SemEval: pairs of several sources with a similarity score from 0 to 5."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lightning_cse.data.corpora.spec import Corpus, CorpusFile, Table
from lightning_cse.data.corpora.tables import checked_score, checked_sentence
from lightning_cse.errors import DataError

LICENCE = "research data of SemEval"
NO_SCORE = "no gold score"
BY_HAND = "fetches nothing: unpack SemEval's archives there; SentEval's script for its data has their addresses"
DOWNLOADS = "downloads the official files, which SynWMD carries, and checks digests"
SOURCE = "https://raw.githubusercontent.com/amao0o0/SynWMD/59042a92e862/data/downstream/STS"


class _Subset(NamedTuple):
    """One of the sources of a year, as its files name it; rows are scored pairs, digests those of its two files."""

    name: str
    rows: int
    pairs: str
    scores: str


def parse_pairs(text: str, path: str) -> Table:
    """Parse a file of sentence pairs: two cells between tabs, no header, no quoting; outer white space is removed.

    The two further cells that files of 2016 have as released, the sources of the sentences, are left out.

    Raises:
        DataError: At the first fault, with file and line.
    """
    first: list[str] = []
    second: list[str] = []
    rows = text.removesuffix("\n").split("\n")
    for line, row in enumerate(rows, start=1):
        where = f"{path}:{line}"
        cells = row.removesuffix("\r").split("\t")
        if len(cells) not in {2, 4}:
            count = f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"
            raise DataError(f"{where}: {count} between tabs, 2 are needed, or 4 with the sources")
        first.append(checked_sentence(cells[0], "sentence1", where))
        second.append(checked_sentence(cells[1], "sentence2", where))
    return Table({"sentence1": first, "sentence2": second}, list(range(1, len(rows) + 1)))


def parse_scores(text: str, path: str) -> Table:
    """Parse a file of gold scores, one a line, from 0 to 5; a blank line is a pair that nobody scored.

    Raises:
        DataError: At the first fault, with file and line, or if there is no score.
    """
    scores: list[float] = []
    lines: list[int] = []
    rows = text.removesuffix("\n").split("\n")
    for line, cell in enumerate(rows, start=1):
        if cell.strip():
            scores.append(checked_score(cell.strip(), "score", f"{path}:{line}", 0.0, 5.0))
            lines.append(line)
    if not scores:
        raise DataError(f"{path}: no score, only {len(rows)} blank line{'' if len(rows) == 1 else 's'}")
    unscored = len(rows) - len(scores)
    return Table({"score": scores}, lines, {NO_SCORE: unscored} if unscored else {})


def _files(split: str, folder: str, remote: str, subsets: Iterable[_Subset]) -> tuple[CorpusFile, ...]:
    """Return the two files of each subset: the pairs, and the scores beside them."""
    return tuple(
        CorpusFile(
            split=split,
            path=f"STS/{folder}/STS.{kind}.{subset.name}.txt",
            rows=subset.rows,
            sha256=sha256,
            remote=f"{remote}/STS.{kind}.{subset.name}.txt",
            parse=parse,
            part=subset.name.removeprefix("surprise."),  # of 2012, where those two had no training data
        )
        for subset in subsets
        for kind, sha256, parse in (("input", subset.pairs, parse_pairs), ("gs", subset.scores, parse_scores))
    )


STS12 = Corpus(
    name="sts12",
    title="STS 2012 (Agirre et al. 2012)",
    files=(
        *_files(
            "train",
            "STS12-en-train",
            "STS12-en-train",
            (
                _Subset(
                    "MSRpar",
                    750,
                    "53b13f0ff68162a4f49051835b4e6ef91111f8dd3e8ffcae5eafd8db70384f90",
                    "8c21613b5416fb45f19434028eb35015165357d0d0d8518c755e44af206f6892",
                ),
                _Subset(
                    "MSRvid",
                    750,
                    "06e8689cf0eba38a45475021bd50be3d06c543304533eeac526f9b58ce91fc29",
                    "00d4118c99db24ec70d84c61aefdd0b7c91a7961ddab0cecdbde3d48d6a750a6",
                ),
                _Subset(
                    "SMTeuroparl",
                    734,
                    "d4751dc01a1e2f3f2044bc3e84a5f669cf0665411c5966e65f9d8bbd499ad41b",
                    "b679e8b839a7d7e13ac36d66b06debd6a3abdc4fb4261db7b0958b758db935e8",
                ),
            ),
        ),
        *_files(
            "test",
            "STS12-en-test",
            "STS12-en-test",
            (
                _Subset(
                    "MSRpar",
                    750,
                    "76bf7089f9e7c05732163a227b3ce679512554513eb783f2548b07d659bd733d",
                    "5526be59228bc34ccb3cb6f1f56c0d7278d3419b8886713ae016fd92b151f19c",
                ),
                _Subset(
                    "MSRvid",
                    750,
                    "476d14034a241f71b832e4ae557dd6cdbe265b57c915570a2583f93b4456948d",
                    "9c6096c6bcfb0144c8bbddb00900ca9198c88498630cd0c8f08d18365f1d7150",
                ),
                _Subset(
                    "SMTeuroparl",
                    459,
                    "dd31dbb6e7eef8a0d00347fe012f7cf372943167e30f60f6fb3b10219a41941f",
                    "708530c4d006d06881f3289fce35d624d7efe562dcf0fe5f8aa0eec3a135f6d4",
                ),
                _Subset(
                    "surprise.OnWN",
                    750,
                    "07ec7b91348aece0873b41f7fc4e76e9fddf05bdb82c048c98d92f5db0bec07d",
                    "088d8ca22c0aa406e4a5d2e6e308a4f38b482b8e736c2445a38ffb6e4c4fb4fd",
                ),
                _Subset(
                    "surprise.SMTnews",
                    399,
                    "2788a98ef33c3b7b704ef4891fe863cfcf061338e8aa41cb737d0f137f3ba03c",
                    "aa6dfc868db333c43dc59be14d46fa6587c7ebddc0d497e717f647bf35121cf1",
                ),
            ),
        ),
    ),
    parse=parse_pairs,
    licence=LICENCE,
    prepare=BY_HAND,
)

STS13 = Corpus(
    name="sts13",
    title="STS 2013, without SMT, whose text is not free (Agirre et al. 2013)",
    files=_files(
        "test",
        "STS13-en-test",
        "STS13-en-test/test-gs",
        (
            _Subset(
                "FNWN",
                189,
                "b48fc64cd85703ac6431f8ea6722f325fe9620fd4f33b3d5c24dd89c553e74bc",
                "8ca95b7228119578e2007839cf7969f22c4f1fd41fd610c4b7f9683072d98066",
            ),
            _Subset(
                "headlines",
                750,
                "885e6149fff28a79591ba464c13626d03593b822c88c7c04b6564354d31c7561",
                "f49f64089011436dd296ef384c07160219406feef7dc4b9fa2af52a519f32bc6",
            ),
            _Subset(
                "OnWN",
                561,
                "127c66889627f26dc11864dc9be4ba1e4895ed60125985c755429ad588e4b9c8",
                "0cd497aaddb00a2fb6db25f77bccfc09e8aa012e11549b81b434bab1a27ad954",
            ),
        ),
    ),
    parse=parse_pairs,
    licence=LICENCE,
    prepare=DOWNLOADS,
    sources=(SOURCE,),
)

STS14 = Corpus(
    name="sts14",
    title="STS 2014, English (Agirre et al. 2014)",
    files=_files(
        "test",
        "STS14-en-test",
        "STS14-en-test/sts-en-test-gs-2014",
        (
            _Subset(
                "deft-forum",
                450,
                "8b48aa15bb850e2827446f6e98cc3c5123ff283924b4571a409aa2fab73e35c6",
                "ba6dc76696b5c93985590a325b4d142449932cdf0d715b2bab1b1743fe3c488c",
            ),
            _Subset(
                "deft-news",
                300,
                "92df5b8c48873cbfba36b73a77955fb965c9244776df9e9c2c4d2f6155bdeefe",
                "105c5b333abd50c274efb4dae9e3e0dab36ed63eee780cfb49955b1586bd62f2",
            ),
            _Subset(
                "headlines",
                750,
                "a19f84294325c62a2a403b59957196fd7737f86654ded0e04e0b54bc4a8bcf9e",
                "f243c34647255cd0b994565ed4f58dd31506e7d9c9d6250d1a6dd14095625832",
            ),
            _Subset(
                "OnWN",
                750,
                "a227d5fe1c1f729a52a0b39b5b36d3225e1bca3c278e7ed392cac2ecd3990f1c",
                "1c80147df270ea4cfce14a47ed29f8a2f10d5dc016d02836077fd786ff7f535b",
            ),
            _Subset(
                "images",
                750,
                "cec1b3c08b0e4c88aeaf8dca047f5b28f4a8588eeef58475e0f16491d2bb7193",
                "fc994ebacc7074c332626fa9e29542d7340a48a3cdb999b47cdb59c378523a62",
            ),
            _Subset(
                "tweet-news",
                750,
                "250d29ec9394e35443b2a73016ccc55e11b20939a3b8ee3bea9a858ba2f9adc0",
                "0098c644bfeaa2d511a8297b1940771865900c372c9dd49a62726dc5ec02c9a3",
            ),
        ),
    ),
    parse=parse_pairs,
    licence=LICENCE,
    prepare=DOWNLOADS,
    sources=(SOURCE,),
)

STS15 = Corpus(
    name="sts15",
    title="STS 2015, English, the scored pairs (Agirre et al. 2015)",
    files=_files(
        "test",
        "STS15-en-test",
        "STS15-en-test/test_evaluation_task2a",
        (
            _Subset(
                "answers-forums",
                375,
                "fe8e460a74e8e38704ac4e6ddcedec89fd6e51cd0467d6f4301b444b259688e1",
                "1644301a7540e5484da285002e9269062852efb2272be614cad99c9530f6a102",
            ),
            _Subset(
                "answers-students",
                750,
                "16eedf46fb3b29822b275a0ddcff8e873a6eb4bafba244a17c4049ffc318d62a",
                "028db213140f8c7aef7497c4ae38b6380938f20359852231669c83dce11c3701",
            ),
            _Subset(
                "belief",
                375,
                "6e924a19fb1abbce01a8666f07766250b46a96c89272de8e5b01d0905bc61b79",
                "5736192faaccbdbecd0ef6b73ec04b24115cd2e48d55dc3b1b170da3d2a81c75",
            ),
            _Subset(
                "headlines",
                750,
                "779c195c54b72282bd3c8ca1dbb09a4155a39b2acd13d5cf819d8555d717cf6a",
                "e8e432f769c8a94ddb62ae3343890ac24a9dd78a116d56c707313bc59413dd56",
            ),
            _Subset(
                "images",
                750,
                "6f332542a75bcd18ea1442fc129306f746cd7ade7010ea274e763bfca576cc47",
                "ed8878209098c77ca7f02ac413d3fd698f92ad3425999555e50fda89fc46012a",
            ),
        ),
    ),
    parse=parse_pairs,
    licence=f"{LICENCE}; answers-forums CC BY-SA 3.0",
    prepare=DOWNLOADS,
    sources=(SOURCE,),
)

STS16 = Corpus(
    name="sts16",
    title="STS 2016, English, the scored pairs (Agirre et al. 2016)",
    files=_files(
        "test",
        "STS16-en-test",
        "STS16-en-test",
        (
            _Subset(
                "answer-answer",
                254,
                "efb56fb85eb65fb2283603797ad61432ef74b4c60d68458ea7ad5a53a1ba94b8",
                "332efd741b0cb247d20dd2a6cec854360c921c7e6b395f328f562d8d26057214",
            ),
            _Subset(
                "headlines",
                249,
                "7044b765d51ab08f0a34e1a5e97bbb3c7fd9b7d27d167c9cd597a5a42a70ddd9",
                "01e33a95996201a6e81e3cce9eda0f15048b77613ea64dce2929bb35479f7d85",
            ),
            _Subset(
                "plagiarism",
                230,
                "7bcc5a2aa78da3d20d83ac79ae10a20bd5bc2f71fc086e875d84ec6e266689c7",
                "29984944a91aaff484f2b2e5d4d434fc8a6f5ef6f578a880cccd2786f5142fdc",
            ),
            _Subset(
                "postediting",
                244,
                "f6006fd0b70daf9196b41d796ee7c769f343e9370c3a1c4f68125f14e06c026c",
                "81947ed9dbe7f85b7bd249df68ed5c7b2f16f06390ad568eb5554b1e26bc5577",
            ),
            _Subset(
                "question-question",
                209,
                "4980711d31b1a1575d4dd04818ec990c9db63411ca8128c3dfc5254b9fb65336",
                "cf9ebf9d140191f73620cda0560947ad9283c910735d0d541b8a401a5e64afb0",
            ),
        ),
    ),
    parse=parse_pairs,
    licence=f"{LICENCE}; the parts from Stack Exchange CC BY-SA 3.0",
    prepare=f"{BY_HAND}; of the input files of 2016, columns 1 and 2",
)
