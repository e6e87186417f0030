"""Costs before anything runs: counted by hand, chosen by memory and time, refused with a sentence."""

import json

import pytest

import everwide as ew
from everwide import InputError, _plan
from everwide._plan import Rates, choice, costs, duration

pytestmark = [pytest.mark.once]

RATES = Rates(entries=50e6, single=100e9, double=50e9, products=1e9)
NET = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
GB = 10**9


def option(name, n, **change):
    given = {"outputs": 10, "memory": 100 * GB} | change
    return next(one for one in costs(n, RATES, **given) if one.name.startswith(name))


def test_conjugate_gradients_cost_a_triangle_and_its_products():
    n = 60_000
    seconds = n**2 / 2 / 50e6 + 30 * n**2 / 2 / 1e9  # 36 s to form, 54 s to multiply
    found = option("conjugate gradients", n)
    assert seconds / 60 < found.minutes < 1.5 * seconds / 60
    assert found.bytes == pytest.approx(2 * n**2, rel=0.1)
    half = option("the same, in 16 bits", n)
    assert found.minutes < half.minutes < 4 * found.minutes
    assert half.bytes == pytest.approx(n**2, rel=0.1)
    again = option("the same, recomputed", n)
    assert again.minutes * 60 > 30 * n**2 / 2 / 50e6
    assert again.bytes < GB


def test_programs_that_are_compiled_on_the_way_are_counted():
    given = {"outputs": 10, "memory": 100 * GB}
    pairs = zip(costs(2500, RATES, **given), costs(2500, RATES._replace(compiling=3.0), **given), strict=True)
    more = {one.name: 60 * (two.minutes - one.minutes) for one, two in pairs}
    assert more == pytest.approx({
        "cholesky": 3.0, "cholesky, float32": 0.9, "conjugate gradients": 3.9, "the same, in 16 bits": 3.9,
        "the same, recomputed": 3.9, "nystrom, 150 centres": 12.0, "1 leaves of 2500 rows": 0.0,
    })  # fmt: skip


def test_what_a_first_call_takes_more_is_compilation(monkeypatch):
    clock, asked = iter([3.0, 0.01, 0.2, 0.16]), []
    monkeypatch.setattr(_plan, "_timed", lambda work, once=False: work() or next(clock))
    monkeypatch.setattr(_plan, "_products", lambda outputs: (1e11, 5e10, 1e9))
    monkeypatch.setattr(_plan.NetworkKernel, "cross", lambda self, x, y: asked.append(len(x)))
    assert ew.plan(NET, 2000, (8,), memory=GB).rates == Rates(
        0.65 * 2048**2 / 0.16, 1e11, 5e10, 1e9, pytest.approx(2.99)
    )
    assert asked == [512, 512, 2048, 2048]


def test_factors_cost_the_cube_and_leaves_do_not():
    for name, power in (("cholesky, float32", 3), ("nystrom", 2), ("64 leaves", 1)):  # centres grow with the root of n
        few = option(name, 200_000)
        growth = next(
            one for one in costs(400_000, RATES, outputs=10, memory=100 * GB)
            if type(one.solver) is type(few.solver) and one.exact == few.exact
        ).minutes / few.minutes  # fmt: skip
        assert 2 ** (power - 0.3) < growth < 2 ** (power + 0.5), name


def test_workers_share_the_kernel_but_no_factor():
    one, two = (option("the same, recomputed", 60_000, workers=w).minutes for w in (1, 2))
    assert 1.6 < one / two < 2.0
    assert option("cholesky", 60_000, workers=2).minutes > 0.9 * option("cholesky", 60_000).minutes


def chosen(n, memory, rates=RATES, sites=False):
    return choice(n, tuple(costs(n, rates, outputs=10, memory=memory, sites=sites)), memory)


def test_memory_and_time_choose():
    assert chosen(1000, 10 * GB).exact
    assert chosen(60_000, 10 * GB).name == "conjugate gradients"
    assert chosen(60_000, 4 * GB).name == "the same, in 16 bits"
    assert chosen(60_000, 2 * GB).name == "the same, recomputed"
    assert not chosen(1_000_000, 8 * GB).exact
    assert "leaves" not in chosen(1_000_000, 8 * GB, sites=True).name


def test_work_of_days_and_of_no_memory_is_refused():
    slow = RATES._replace(entries=1000.0)
    with pytest.raises(InputError, match=r"would take [\d.]+ days.*fewer rows \(\d+ take an hour"):
        chosen(1_000_000, 8 * GB, slow)
    with pytest.raises(InputError, match=r"may be used\. Give more with memory="):
        chosen(60_000, 1000)


def test_durations():
    assert [duration(m) for m in (0.01, 1.5, 45.0, 110.0, 180.0, 2 * 24 * 60)] == [
        "0.6 s", "1.5 min", "45 min", "110 min", "3 h", "2 days",
    ]  # fmt: skip


def test_a_plan_is_a_table_and_its_solver_solves():
    plan = ew.plan(NET, 3000, outputs=2, memory=GB)
    text = str(plan)
    assert text.splitlines()[0].split() == ["solver", "solution", "time", "memory"]
    assert "chosen" in text
    assert "Rows of shape (64,) are assumed" in text
    assert "million entries" in text
    assert json.loads(json.dumps(plan.to_dict()))["chosen"] == plan.chosen.name
    assert all(rate > 1e3 for rate in plan.rates[:4])
    assert plan.minutes == plan.chosen.minutes > 0
    assert plan.bytes <= GB


@pytest.mark.parametrize(("call", "message"), [
    (lambda: ew.plan(NET, 1), "2 or more"),
    (lambda: ew.plan(NET, 100, outputs=0), "outputs=0"),
    (lambda: ew.plan(NET, 100, workers=0), "workers=0"),
    (lambda: ew.plan(NET, 100, memory=-1), "memory=-1"),
    (lambda: ew.plan(NET, 100, which="both"), "expected 'ntk' or 'nngp'"),
    (lambda: ew.plan(ew.Serial(ew.Conv((3, 3)), ew.Relu()), 100, (8, 8, 1)), "outputs at sites"),
])  # fmt: skip
def test_bad_input_has_a_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_network_that_reads_images_says_so():
    with pytest.raises(ew.ArchitectureError):
        ew.plan(ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.Flatten(), ew.Dense(1)), 100)
