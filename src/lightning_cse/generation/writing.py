"""A language model writes by a pattern: role by role for each source, each reply judged, some asked for again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lightning_cse.generation.pattern import SOURCE, Pattern, Role
from lightning_cse.generation.settled import UNANSWERABLE, Rejected, Settled, Unanswered
from lightning_cse.llm import Asking, ChatClient, Failure, LLMError, Reply, Request

_SHOWN: Final = 200
"""Characters of a reply that a message shows."""

_SEED: Final = "seed"
"""The parameter that would bring the same reply each time."""


class Writer:
    r"""Has sentences written for sources, by a pattern.

    The roles of a source are asked one after the other, since a role may be made of a sentence that was written for an
    earlier one and is compared with all of them; many sources are under way at once. A reply that its role's checks
    reject is asked for again, as another sample, up to ``samples`` times; after that the source is given up, and the
    next one is drawn in its place. So the sources that are settled in the end are the first ones in the order of
    drawing, as many as make ``wanted`` complete ones, whichever reply came first.

    Source: NGCSE, similarity pattern simulation.  Differs: the authors' code has no checks, and takes every reply.

    Args:
        client: Whom to ask; with a cache, a reply that was paid is not paid again.
        pattern: The roles, their prompts and checks.
        parameters: What goes to the endpoint with every request. A ``seed`` is that of the first sample of each role,
            and is raised by one for each further one: with the same seed the same reply would come.
        samples: How many replies each role of a source may take.
        patience: How many sources may be given up before it matters whether they are more than the complete ones, in
            which case the fault is not with them, and no more is paid; None: as many as there are.
    """

    def __init__(
        self,
        client: ChatClient,
        pattern: Pattern,
        *,
        parameters: Mapping[str, float | int | str],
        samples: int,
        patience: int | None = None,
    ) -> None:
        self.client = client
        self.pattern = pattern
        self.parameters = dict(parameters)
        self.samples = samples
        self.patience = patience

    def request(self, role: Role, sentence: str, sample: int = 0) -> Request:
        """Return what is asked for a role, given the sentence that it is made of.

        Roles with one prompt and one reference want different replies to the same: they take turns with the samples.
        """
        alike = [
            each.name for each in self.pattern.roles if (each.prompt, each.reference) == (role.prompt, role.reference)
        ]
        sample = sample * len(alike) + alike.index(role.name)
        parameters = self.parameters
        if sample and isinstance(seed := parameters.get(_SEED), int):
            parameters = {**parameters, _SEED: seed + sample}
        return Request(role.messages(sentence), parameters, sample)

    def write(
        self, sources: Sequence[str], wanted: int, *, settled: Mapping[int, bool]
    ) -> Generator[Settled | Unanswered, None, None]:
        """Yield each source as nothing more is asked for it; to stop, close the iterator.

        Args:
            sources: The sentences in the order of drawing.
            wanted: How many complete ones there are to be, earlier ones included.
            settled: Which positions are settled already, and whether they are complete; nothing is asked for them.

        Raises:
            LLMError: If no further request will be answered, or the cache cannot be used; or if more sources were given
                up than ``patience``, and than are complete. Replies that came are kept.
        """
        order = _Order(sources, wanted, settled)
        complete = sum(settled.values())
        given_up = len(settled) - complete
        asking: Asking[_Open]
        with self.client.session() as asking:
            self._begin(asking, order)
            for source, outcome in asking.landed():
                ended = self._hear(source, outcome)
                if ended is None:
                    asking.submit(source, self._next(source))
                else:
                    if isinstance(ended, Settled):
                        order.settle(complete=ended.complete)
                        complete, given_up = complete + ended.complete, given_up + (not ended.complete)
                    yield ended
                    if isinstance(ended, Settled) and not ended.complete and self._in_vain(given_up, complete):
                        raise LLMError(f"{given_up} of {given_up + complete} sentences were given up; {_told(ended)}")
                self._begin(asking, order)

    def _in_vain(self, given_up: int, complete: int) -> bool:
        return self.patience is not None and given_up > max(self.patience, complete)

    def _begin(self, asking: Asking[_Open], order: _Order) -> None:
        """Start sources while calls are free."""
        while asking.free and (source := order.next()) is not None:
            asking.submit(source, self._next(source))

    def _next(self, source: _Open) -> Request:
        role = self.pattern.roles[len(source.sentences)]
        return self.request(role, source.reference(role), source.sample)

    def _hear(self, source: _Open, outcome: Reply | Failure) -> Settled | Unanswered | None:
        """Take note of what came for a source, and return how it ended, if it did."""
        role = self.pattern.roles[len(source.sentences)]
        if isinstance(outcome, Failure):
            if not outcome.final:
                return Unanswered(source.position, outcome.reason)
            source.rejected.append(Rejected(role.name, UNANSWERABLE, outcome.reason))
            return source.ended(complete=False)
        source.count(outcome)
        judged = role.checks.judge(
            outcome,
            source=source.anchor,
            reference=source.reference(role),
            written=source.sentences,
            prompt=role.prompt,
        )
        if judged.reason is None:
            source.sentences[role.name] = judged.sentence
            source.sample = 0
            return source.ended(complete=True) if len(source.sentences) == len(self.pattern.roles) else None
        source.rejected.append(Rejected(role.name, judged.reason, outcome.text or outcome.refusal or ""))
        source.sample += 1
        return source.ended(complete=False) if source.sample >= self.samples else None


def _told(last: Settled) -> str:
    """Return what to say of the source that was given up last, and what to do."""
    rejected = last.rejected[-1]
    shown = repr(rejected.text if len(rejected.text) <= _SHOWN else f"{rejected.text[:_SHOWN]}...")
    return (
        f"of the last one, the {rejected.role} was rejected ({rejected.reason}): {shown}. Change the pattern's prompts "
        "or its checks, or llm.parameters (max_tokens, where replies are cut off); patience=null goes on all the same"
    )


class _Order:
    """Which source is next: as many as are wanted, and one more for each that was given up."""

    def __init__(self, sources: Sequence[str], wanted: int, settled: Mapping[int, bool]) -> None:
        self._sources = sources
        self._settled = settled
        self._most = wanted
        self._position = 0

    def settle(self, *, complete: bool) -> None:
        """Take note of one that was begun here."""
        self._most += not complete

    def next(self) -> _Open | None:
        """Return the next source that is not settled; None if no more is wanted now, or there is none."""
        while self._position < min(self._most, len(self._sources)):
            position = self._position
            self._position += 1
            if position not in self._settled:
                return _Open(position, self._sources[position])
            self.settle(complete=self._settled[position])
        return None


@dataclass
class _Open:
    """A source that something is asked for."""

    position: int
    anchor: str
    sample: int = 0
    sentences: dict[str, str] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    unmetered: int = 0
    served: Counter[str] = field(default_factory=Counter)

    def reference(self, role: Role) -> str:
        """Return the sentence that a role is made of."""
        return self.anchor if role.reference == SOURCE else self.sentences[role.reference]

    def count(self, reply: Reply) -> None:
        """Count a reply and its tokens."""
        self.replies += 1
        self.prompt_tokens += reply.prompt_tokens or 0
        self.completion_tokens += reply.completion_tokens or 0
        self.unmetered += reply.prompt_tokens is None or reply.completion_tokens is None
        self.served.update([reply.served] if reply.served else [])

    def ended(self, *, complete: bool) -> Settled:
        """Return what came of it."""
        return Settled(
            self.position,
            self.anchor,
            self.sentences,
            tuple(self.rejected),
            self.replies,
            self.prompt_tokens,
            self.completion_tokens,
            self.unmetered,
            dict(self.served),
            complete,
        )
