"""Compare the throughput of ``generate`` with a bare loop that asks the same server.

    make bench-llm ARGS="llm=llama_cpp llm.model=my-model n=40"

Both write rows by the same prompts with as many calls at once (``llm.concurrency``), each for
sentences of its own, so that neither finds the other's requests in the server's memory. The bare
loop is the openai client and a semaphore: it keeps no reply, checks nothing, and asks once for each
role. In turn, each does a quarter of its sentences, four times, so that a change of the machine's
speed meets both. Reported are tokens (as the server counts them), replies and rows an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openai
from omegaconf import OmegaConf

from lightning_cse.config.compose import compose_run
from lightning_cse.generation.generating import Generation
from lightning_cse.generation.text import cleaned
from lightning_cse.generation.writing import Writer
from lightning_cse.llm import read_answer
from lightning_cse.llm.http import response_format
from lightning_cse.runs import environment

TURNS = 4


async def bare(writer: Writer, sentences: Sequence[str]) -> Counter[str]:
    """Write one row for each sentence, and return the number of tokens, replies and rows."""
    endpoint = writer.llm.endpoint
    counts: Counter[str] = Counter()
    free = asyncio.Semaphore(endpoint.concurrency)

    async def row(sentence: str) -> None:
        written = {"source": sentence}
        async with free:
            for role in writer.pattern.roles:
                request: Any = writer.request(role, written[role.reference])
                messages = [{"role": role, "content": text} for role, text in request.messages]
                reply = await create(
                    model=endpoint.model,
                    messages=messages,
                    response_format=response_format(request.schema),
                    **request.parameters,
                )
                answer = read_answer(reply.choices[0].message.content, "sentence")
                written[role.name] = cleaned(answer or "")
                counts.update(prompt=reply.usage.prompt_tokens, replies=1)
                counts.update(completion=reply.usage.completion_tokens)

        counts.update(rows=1)

    async with openai.AsyncOpenAI(
        base_url=endpoint.address, api_key=endpoint.key(), timeout=endpoint.timeout
    ) as client:
        create: Any = client.chat.completions.create
        await asyncio.gather(*map(row, sentences))

    return counts


def ours(generation: Generation) -> Counter[str]:
    """Write the rows of a generation, and return the number of tokens, replies and rows."""
    provenance = generation.write()
    roles = provenance["acceptance"]["roles"].values()

    return Counter(
        **provenance["tokens"],
        replies=sum(role["asked"] for role in roles),
        rows=provenance["acceptance"]["sources"]["complete"],
    )


def main() -> None:
    """Measure both in turn, print the table and write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", default=Path(__file__).with_suffix(".json")
    )
    parser.add_argument("overrides", nargs="*", help="as for the command generate")
    args = parser.parse_intermixed_args()
    overrides = ["+pattern=sts", "data=wiki", "n=40", "corpora=sample", "paths=sample"]
    overrides += args.overrides
    totals = {"bare loop": Counter[str](), "generate": Counter[str]()}
    seconds = dict.fromkeys(totals, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            generation = _generation(overrides, folder, turn)
            sentences = generation.sentences[::-1][: generation.wanted]
            for name in totals:
                start = time.perf_counter()
                if name == "bare loop":
                    totals[name] += asyncio.run(bare(generation.writer, sentences))
                else:
                    totals[name] += ours(generation)

                seconds[name] += time.perf_counter() - start

    rates = {
        name: {counter: round(3600 * count / seconds[name]) for counter, count in counts.items()}
        for name, counts in totals.items()
    }
    document: dict[str, Any] = {
        "per hour": rates,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "overrides": args.overrides,
        "environment": environment(),
    }
    text = json.dumps(document, indent=2) + "\n"
    args.json.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def _generation(overrides: Sequence[str], folder: str, turn: int) -> Generation:
    """Return the part of a turn: a quarter of the rows, drawn by a seed of its own."""
    paths = [f"paths.runs_dir={folder}/runs", f"paths.cache_dir={folder}/cache"]
    cfg = compose_run("generate", [*overrides, *paths, f"seed={turn}"])
    cfg.n = -(-cfg.n // TURNS)
    OmegaConf.set_readonly(cfg, True)

    return Generation(cfg, "wiki", overrides)


if __name__ == "__main__":
    main()
