"""Search a large corpus: faiss finds candidates, and the model scores them.

``Dataset.map`` encodes a data set by the batch; if it was loaded from files, its vectors are in a
mapped file, too. A corpus beyond one machine is encoded by examples/encode_with_ray.py.
``model.search(queries, sentences)`` compares a query with every sentence and needs no index; beyond
a few million sentences, an approximate index is faster. This needs faiss: pip install
'lightning_cse[search]'.
"""

import datasets
import faiss

import lightning_cse
from lightning_cse.data import read_corpus, sample_dir

model = lightning_cse.load("minilm_l6")
rows = read_corpus("inli", "train", sample_dir())
sentences = list(dict.fromkeys(rows["implied_entailment"]))
query = "I am freezing."


def vectors_of(batch: dict[str, list[str]]) -> dict[str, list]:
    """Return the vectors of a batch of rows."""
    return {"vector": model.encode(batch["text"], normalize_embeddings=True)}


corpus = datasets.Dataset.from_dict({"text": sentences})
corpus = corpus.map(vectors_of, batched=True, batch_size=10_000)
corpus.add_faiss_index(
    "vector", string_factory="IVF8,Flat", metric_type=faiss.METRIC_INNER_PRODUCT, train_size=10_000
)
corpus.get_index("vector").faiss_index.nprobe = 4  # lists that are searched, of 8

# The index gives candidates; the model's own similarity ranks them.
vector = model.encode(query, normalize_embeddings=True)
_, candidates = corpus.get_nearest_examples("vector", vector, k=20)
for hit in model.search(query, candidates["text"], k=3)[0]:
    print(f"{hit.score:.3f}  {candidates['text'][hit.row]}")

exact = {sentences[hit.row] for hit in model.search(query, sentences, k=20)[0]}
print(f"recall of the index at 20: {len(exact & set(candidates['text'])) / 20:.2f}")
