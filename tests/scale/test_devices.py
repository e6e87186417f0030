"""All local devices of JAX: every one computes, and the numbers are the same."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import everwide as ew
from everwide.scale import Devices, Store

pytestmark = pytest.mark.once

FOUR = """
import sys
import jax, numpy as np
import everwide as ew
from everwide.scale import Devices, Store

used, put = set(), jax.device_put
jax.device_put = lambda x, device: (used.add(device), put(x, device))[1]
net = ew.Serial(ew.Dense(w_std=1.4, b_std=0.1), ew.Relu(), ew.Dense(1))
x = np.random.default_rng(0).standard_normal((50, 4))
here = ew.gram(net, x, tile=8)
assert not used
all4 = ew.gram(net, x, tile=8, backend=Devices())
assert used == set(jax.local_devices()) and len(used) == 4, used
assert all((a == b).all() for a, b in zip(here, all4)), "other bits"
used.clear()
two = ew.gram(net, x, tile=8, backend=Devices(jax.local_devices()[1:3]))
assert len(used) == 2
assert (two.ntk == here.ntk).all()
kept = ew.gram(net, x, out=Store(sys.argv[1]), tile=8, backend=Devices())
assert (kept.ntk[:] == here.ntk).all()
try:
    ew.ntk(net, x, backend="dask")
except ew.InputError as fault:
    assert "expected everwide.scale.Devices() or everwide.scale.Dask(client)" in str(fault)
    print("fine")
"""


def test_several_devices_take_turns(tmp_path):
    flags = "--xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": ":".join(sys.path), "JAX_ENABLE_X64": "0"}
    run = [sys.executable, "-c", FOUR, str(tmp_path / "run")]
    done = subprocess.run(run, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.strip() == "fine", done.stderr


def test_one_device_is_the_same_as_none(tmp_path):
    net, x = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), np.random.default_rng(0).standard_normal((9, 4))
    assert (ew.ntk(net, x, tile=4, backend=Devices()) == ew.ntk(net, x, tile=4)).all()
    kept = ew.ntk(net, x, tile=4, backend=Devices(jax.local_devices()[:1]), out=Store(tmp_path / "run"))
    assert (kept[:] == ew.ntk(net, x, tile=4)).all()


def test_what_is_no_device_is_refused():
    with pytest.raises(ew.InputError, match=r"expected some of jax\.local_devices\(\)"):
        Devices([0, 1])
