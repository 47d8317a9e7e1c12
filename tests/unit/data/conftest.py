"""Files of a data directory, rows as plain dictionaries, and a check of their account."""

import pytest

from lightning_cse.data import mapped


@pytest.fixture
def put(tmp_path):
    """Write a file of the data directory."""

    def put(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

        return path

    return put


@pytest.fixture
def long(monkeypatch):
    """Treat arrays of three values as long, and blocks of four as large."""
    monkeypatch.setattr(mapped, "LONG", 3)
    monkeypatch.setattr(mapped, "BLOCK", 4)


@pytest.fixture(scope="session")
def plain():
    """Return rows without the columns that record their origin."""
    return lambda rows: [{name: row[name] for name in rows.names} for row in rows]


@pytest.fixture(scope="session")
def adds_up():
    """Return whether all rows that were read are used or dropped for a reason; data has its own
    count ``used``.
    """

    def adds_up(counts, used=None):
        dropped = sum(count for key, count in counts.items() if key.startswith("dropped: "))
        return counts["read"] == (counts["used"] if used is None else used) + dropped

    return adds_up
