"""Files of a data directory, rows as plain dictionaries, and a check of their account."""

import pytest

from lightning_cse.data.rows import names_of


@pytest.fixture
def put(tmp_path):
    """Write a file of the data directory."""

    def put(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

        return path

    return put


@pytest.fixture(scope="session")
def plain():
    """Return rows without the columns that record their origin."""
    return lambda rows: list(rows.select_columns(names_of(rows)))


@pytest.fixture(scope="session")
def adds_up():
    """Return whether all rows that were read are used or dropped for a reason; data has its own
    count ``used``.
    """

    def adds_up(counts, used=None):
        dropped = sum(count for key, count in counts.items() if key.startswith("dropped: "))
        return counts["read"] == (counts["used"] if used is None else used) + dropped

    return adds_up
