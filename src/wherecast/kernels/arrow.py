"""Where Arrow keeps the values of a record batch, by its C interface.

Theory of operation
-------------------
The naive way asks each column for its buffers, in Python: two microseconds a column, which is more than coding a hundred values takes. Arrow
exports a whole record batch as one structure in C, in a microsecond, and a kernel reads the addresses out of it and gives the structure back: the buffers
stand as long as the record batch does. The structure is part of Arrow's stable interface; it says nothing of the sizes of buffers, so texts must have been validated.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Longs
from wherecast.kernels.jit import array_at, call_at, hot

#: Numbers for a column: addresses of its values (of texts, of their offsets), of the bytes of its texts, and of its validity (0: all are
#: valid), and the place of the first value there (OFFSET). All are 0 if there is no value.
COLUMN_WORDS, OFFSET = 4, 3
#: Places in the structure `ArrowArray`, in words.
_NULLS, _OFFSET, _N_BUFFERS, _N_CHILDREN, _BUFFERS, _CHILDREN, _RELEASE = 1, 2, 3, 4, 5, 6, 8
#: Words of the structure.
ARRAY_WORDS = 10


@hot
def find_buffers(exported: int, places: Longs, out: Longs) -> None:
    """Write to out[places[0, i]] where the values of column places[1, i] are, of a record batch exported to an address; the export ends."""
    batch = array_at(exported, ARRAY_WORDS, np.int64)
    children = array_at(batch[_CHILDREN], batch[_N_CHILDREN], np.int64)
    for i in range(places.shape[1]):
        row = places[0, i]
        child = array_at(children[places[1, i]], ARRAY_WORDS, np.int64)
        buffers = array_at(child[_BUFFERS], child[_N_BUFFERS], np.int64)
        out[row, 0] = buffers[1]
        out[row, 1] = buffers[2] if child[_N_BUFFERS] > 2 else 0
        out[row, 2] = buffers[0] if child[_NULLS] != 0 else 0
        out[row, OFFSET] = child[_OFFSET] + batch[_OFFSET]
    call_at(batch[_RELEASE], exported)
