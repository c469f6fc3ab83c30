"""The library's accountants are an extra; the room works without it."""

import subprocess
import sys

import numpy as np
import pytest

from tacit.dp import ADD_REMOVE_RECORD, Gaussian, Poisson
from tacit.dp.renyi import renyi

PROGRAM = """
import sys
sys.modules["dp_accounting"] = None
sys.modules["opacus"] = None
from tacit.dp import ADD_REMOVE_RECORD, Gaussian, epsilon
from tacit.errors import ConfigError
import tacit.learn.noise
event = Gaussian(sigma=1.0, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD)
print(round(epsilon([event], delta=1e-5, accountant="fourier").epsilon, 3))
try:
    epsilon([event], delta=1e-5, accountant="pld")
except ConfigError as error:
    print(error)
"""


def test_without_the_extra_our_own_accountant_works_and_the_others_say_what_to_install():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=240
    )
    first, second = done.stdout.splitlines()
    assert first == "4.377"
    assert "pip install 'tacit-ml[dp]'" in second


def test_the_library_is_not_loaded_before_it_is_asked():
    program = "import sys, tacit.dp; print('dp_accounting' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.strip() == "False"


def test_fractional_orders_come_from_our_integral_and_agree_at_whole_ones():
    library = pytest.importorskip("dp_accounting")
    orders = np.array([2.0, 3.0, 5.0, 17.0])
    accountant = library.rdp.RdpAccountant(orders)
    accountant.compose(library.PoissonSampledDpEvent(0.02, library.GaussianDpEvent(0.9)))
    noise = Gaussian(sigma=0.9, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD)
    ours = renyi(Poisson(event=noise, rate=0.02, is_hidden=True), orders)
    assert ours == pytest.approx(accountant.rdp, rel=1e-8)
