"""Quarantine: the rules of a table that are not in a version, because they are refused.

It is part of the version: an Arrow file with the id, the filter, the reason, the position in the filter and the hash of each
rule's content. So whoever asks later, and a `sync` that compares the table with the version, knows what was refused and what it said.
"""

from __future__ import annotations

import logging

import pyarrow as pa

from wherecast.spark.manifest import SavedQuarantine
from wherecast.spark.store import QUARANTINES, IndexStoreError, Store, checksum
from wherecast.spark.subscriptions import QUARANTINE

_FILE = "refused.arrow"
#: Rules that are logged one by one.
_LOGGED = 10

_log = logging.getLogger(__name__)


def save_quarantine(store: Store, refused: pa.Table) -> SavedQuarantine | None:
    """Write refused rules as a new folder of the store; None if there are none."""
    if not len(refused):
        return None
    with store.new_folder(QUARANTINES) as (folder, name):
        with pa.OSFile(str(folder / _FILE), "wb") as sink, pa.ipc.new_file(sink, refused.schema) as writer:
            writer.write_table(refused)
        return SavedQuarantine(name, checksum(folder, (_FILE,)), len(refused))


def open_quarantine(store: Store, saved: SavedQuarantine | None) -> pa.Table:
    """The refused rules of a version. Raises IndexStoreError if the file is missing or damaged."""
    if saved is None:
        return QUARANTINE.empty_table()
    place = f"{store.url}/{saved.folder}"
    try:
        folder = store.fetch(saved.folder)
        if checksum(folder, (_FILE,)) != saved.checksum:
            raise IndexStoreError(f"{place} is not what the index says (its checksum does not fit); build it again")
        with pa.OSFile(str(folder / _FILE)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise IndexStoreError(f"{place} cannot be read ({error}); restore the files or build the index again") from None
    if table.schema != QUARANTINE:
        raise IndexStoreError(f"{place} is not a quarantine; build the index again")
    return table


def log_refused(refused: pa.Table, version: int, url: str) -> None:
    """Tell what was refused, rule by rule up to a limit, and how many they are."""
    for row in refused.slice(0, _LOGGED).to_pylist():
        _log.warning("rule refused: id=%.100r reason=%.500r", row["id"], row["reason"])
    if len(refused):
        _log.warning("rules refused: count=%d version=%d index=%s", len(refused), version, url)
