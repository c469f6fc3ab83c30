"""The verbs that programs are drawn from; add your own to `VERBS`."""

from fuzz.compared import COMPARED
from fuzz.curves import CURVES
from fuzz.images import IMAGES
from fuzz.linear import LINEAR
from fuzz.rows import ROWS
from fuzz.verb import Verb

VERBS: dict[str, Verb] = {**LINEAR, **COMPARED, **CURVES, **ROWS, **IMAGES}
