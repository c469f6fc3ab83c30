"""The kernels on additive shares, by the names of their operations: every protocol has them."""

from collections.abc import Callable, Mapping
from typing import Any

from tacit.mpc.arithmetic import local, public
from tacit.mpc.arithmetic.coded import MultiplyCoded
from tacit.mpc.arithmetic.opening import FromOpening
from tacit.mpc.arithmetic.product import Multiply
from tacit.mpc.arithmetic.truncation import Truncate

# The values are constructors of kernels with different parameters, hence Any.
ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "add": local.Add,
    "concatenate": local.Concatenate,
    "cumsum": local.CumulativeSum,
    "dropout": local.Dropout,
    "fill": public.Fill,
    "from_opening": FromOpening,
    "halve": local.Halve,
    "multiply": Multiply,
    "multiply_coded": MultiplyCoded,
    "offset": public.Offset,
    "part": local.Pick,
    "truncate": Truncate,
    "project": public.Project,
    "restate": local.Restate,
    "reshape": local.Reshape,
    "scale": local.Scale,
    "shift": local.Shift,
    "sum": local.Sum,
    "take": local.Take,
    "transpose": local.Transpose,
    "tune": local.Tune,
    "weigh": public.Weigh,
    "windows": local.Windows,
}
