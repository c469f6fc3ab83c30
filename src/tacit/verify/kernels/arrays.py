"""The types of arrays that kernels take."""

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.floating]
"""Of the library's own type, or the caller's."""
Outputs = npt.NDArray[np.floating | np.integer]
"""Class indices, or the outputs of a regression."""
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Places = npt.NDArray[np.uint64]
