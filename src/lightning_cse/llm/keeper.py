"""Replies on their way into the cache."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from lightning_cse.llm.cache import Entry, ReplyCache
from lightning_cse.llm.errors import LLMError
from lightning_cse.llm.requests import Reply


class Keeper:
    """Puts replies into a cache while calls go on; those that come during one write share the next.

    A write waits for the disk, which can take as long as a call. Lives in one event loop; `close` ends its thread.

    Args:
        cache: where to; None: replies are kept nowhere.

    Attributes:
        writer: the task that writes, while there is something to write; whoever cancels it loses replies.
    """

    def __init__(self, cache: ReplyCache | None) -> None:
        self._cache = cache
        self._waiting: list[tuple[Entry, asyncio.Future[Reply]]] = []
        self.writer: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="llm cache")

    async def keep(self, entry: Entry) -> Reply:
        """Return the reply that is kept, when it is on the disk.

        Raises:
            LLMError: if the cache cannot be written.
            Exception: whatever else the cache raises.
        """
        if self._cache is None:
            return entry.reply
        kept: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, kept))
        if self.writer is None:
            self.writer = asyncio.create_task(self._write(self._cache))
        return await kept

    async def close(self) -> None:
        """Wait until all is written; nothing may be kept any more."""
        if self.writer is not None:
            await self.writer
        self._thread.shutdown()

    async def _write(self, cache: ReplyCache) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._write_batch(cache, batch)
        finally:
            self.writer = None

    async def _write_batch(self, cache: ReplyCache, batch: list[tuple[Entry, asyncio.Future[Reply]]]) -> None:
        """Write, and tell all who wait, whatever comes of it: nobody else would."""
        entries = [entry for entry, _ in batch]
        try:
            replies = await asyncio.get_running_loop().run_in_executor(self._thread, cache.put_all, entries)
            pairs = list(zip(batch, replies, strict=True))
        except Exception as error:  # noqa: BLE001 - raised again by each who waits
            for _, kept in batch:
                if not kept.done():
                    kept.set_exception(LLMError(str(error)) if isinstance(error, LLMError) else error)
            return
        for (_, kept), reply in pairs:
            if not kept.done():
                kept.set_result(reply)
