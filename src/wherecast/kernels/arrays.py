"""Arrays by the type of their values: the names that all annotations use."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Shorts = npt.NDArray[np.int16]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Singles = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
#: Of any type.
Numbers = npt.NDArray[Any]
