"""Search a large corpus: faiss finds candidates, and the model scores them.

Exact search needs no index: ``model.search(queries, folder)`` compares a query with every vector.
Beyond a few million sentences, an approximate index is faster. This needs faiss: pip install
'lightning_cse[search]'.
"""

import tempfile

import datasets
import faiss

import lightning_cse
from lightning_cse.data import read_corpus, sample_dir

model = lightning_cse.load("minilm_l6")
rows = read_corpus("inli", "train", sample_dir())
corpus = list(dict.fromkeys(rows.column("implied_entailment")))
query = "I am freezing."

with tempfile.TemporaryDirectory() as folder:
    # Vectors are written in shards and mapped, so that they need not fit into memory.
    model.encode_to(f"{folder}/vectors", corpus, normalize_embeddings=True)
    vectors = datasets.load_from_disk(f"{folder}/vectors")

    index = faiss.index_factory(model.encoder.width, "IVF8,Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[:10_000]["vector"])
    for batch in vectors.iter(batch_size=10_000):
        index.add(batch["vector"])

    index.nprobe = 4  # lists that are searched, of 8
    queries = model.encode([query], normalize_embeddings=True)
    _, found = index.search(queries, 20)

    # The index gives candidates; the model's own similarity ranks them.
    candidates = [corpus[row] for row in found[0] if row >= 0]
    for hit in model.search(query, candidates, k=3)[0]:
        print(f"{hit.score:.3f}  {candidates[hit.row]}")

    exact = {hit.row for hit in model.search(query, f"{folder}/vectors", k=20)[0]}
    print(f"recall of the index at 20: {len(exact & set(found[0])) / 20:.2f}")
