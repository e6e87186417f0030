"""Verdicts follow from the numbers: made-up tables, in which a claim is true, false, or cannot be told."""

import csv
import dataclasses

import numpy as np
import pytest

from everwide.comparison._compare import Comparison, Curves
from everwide_lab._claims import Claim, Verdict, interval
from everwide_lab.lee2019 import _claims as lee
from everwide_lab.sernau2024 import Arm, Rates, Rest, Sernau2024, Setting
from everwide_lab.sernau2024 import _claims as sernau
from everwide_lab.sernau2024._train import Losses

pytestmark = pytest.mark.once

WIDTHS = (64, 128, 256)
NOISE = 0.01 * np.asarray([-1.0, 0.0, 1.0])  # of the seeds, the same in every arm


def losses(trained, adam, sgd, star, *, momentum=None, still=3.0):
    """Each a loss for each width; seeds differ in all arms alike."""
    found = dict(zip(Arm, (trained, adam, sgd, sgd if momentum is None else momentum, star, [still] * 3), strict=True))
    return {arm: np.asarray(values, float)[:, None] + NOISE for arm, values in found.items()}


AS_IN_THE_PAPER = losses([2.0, 1.9, 1.85], [2.4, 2.2, 1.85], [2.6, 2.4, 2.05], [2.41, 2.21, 1.86])


NAMES = ("blocks", "sgd", "star", "momentum", "wider", "catches up", "approaches", "infinite")


def claims(table, infinite=None, widths=WIDTHS):
    return dict(zip(NAMES, sernau.claims_of(widths, table, infinite or {}, Rest.SGD), strict=True))


def verdicts(table, infinite=None, widths=WIDTHS):
    return {name: claim.verdict for name, claim in claims(table, infinite, widths).items()}


def test_everything_holds_where_it_does():
    infinite = {Arm.FROZEN_ADAM_STAR: AS_IN_THE_PAPER[Arm.FROZEN_ADAM_STAR][-1] - 0.01}
    assert set(verdicts(AS_IN_THE_PAPER, infinite).values()) == {Verdict.HOLDS}


def test_everything_fails_where_it_does():
    rising = losses([2.0, 2.1, 2.2], [2.5, 2.7, 2.9], [2.4, 2.6, 2.8], [2.6, 2.8, 3.0], still=2.0)
    found = verdicts(rising, {Arm.FROZEN_ADAM_STAR: rising[Arm.FROZEN_ADAM_STAR][0] - 0.1})
    assert {name for name, verdict in found.items() if verdict is Verdict.UNDECIDED} == {"star", "momentum"}
    assert set(found.values()) == {Verdict.FAILS, Verdict.UNDECIDED}  # there is no gap to close


@pytest.mark.parametrize(
    ("closed", "verdict"), [(1.0, Verdict.FAILS), (0.5, Verdict.PARTLY), (0.0, Verdict.HOLDS), (-0.5, Verdict.HOLDS)]
)
def test_momentum_alone_may_be_enough(closed, verdict):
    sgd, adam = np.asarray([2.6, 2.4, 2.2]), np.asarray([2.4, 2.2, 2.0])
    claim = claims(losses([2, 2, 2], adam, sgd, adam, momentum=sgd - closed * (sgd - adam)))["momentum"]
    assert claim.verdict is verdict
    assert f"momentum closes {closed:.0%} of the gap" in claim.numbers
    assert "All else by sgd." in claim.numbers


def test_what_was_not_run_at_infinite_width_is_undecided():
    found = verdicts(AS_IN_THE_PAPER)
    assert found["approaches"] is found["infinite"] is Verdict.UNDECIDED
    one = {Arm.FROZEN_ADAM_STAR: AS_IN_THE_PAPER[Arm.FROZEN_ADAM_STAR][-1, :1] + 0.2}  # of one seed
    assert verdicts(AS_IN_THE_PAPER, one)["infinite"] is Verdict.FAILS


@pytest.mark.parametrize(
    ("closed", "verdict"), [(1.2, Verdict.HOLDS), (0.9, Verdict.HOLDS), (0.5, Verdict.PARTLY), (0.1, Verdict.FAILS)]
)
def test_tracking_is_the_share_of_the_gap_that_is_closed(closed, verdict):
    sgd, adam = np.asarray([2.6, 2.4, 2.2]), np.asarray([2.4, 2.2, 2.0])
    star = sgd - closed * (sgd - adam)
    claim = claims(losses([2, 2, 2], adam, sgd, star))["star"]
    assert claim.verdict is verdict
    assert f"closes {closed:.0%} of the gap" in claim.numbers


def test_a_gap_that_shrinks_but_stays_is_closed_in_part():
    shrinking = losses([2.0, 1.9, 1.8], [2.4, 2.2, 2.0], [2.6, 2.4, 2.2], [2.4, 2.2, 2.0])
    claim = claims(shrinking)["catches up"]
    assert claim.verdict is Verdict.PARTLY
    assert "it is 0.50 times as large as at 64" in claim.numbers


def test_a_claim_that_holds_at_some_widths_holds_in_part():
    mixed = losses([2, 2, 2], [2.4, 2.2, 2.0], [2.6, 2.4, 1.9], [2.4, 2.2, 2.0])
    assert verdicts(mixed)["sgd"] is Verdict.PARTLY


def test_noise_decides_nothing():
    noise = np.random.default_rng(0).normal(size=(len(Arm), 3, 3))
    assert verdicts(dict(zip(Arm, 2 + noise, strict=True)))["sgd"] is not Verdict.HOLDS
    one_seed = {arm: values[:, :1] for arm, values in AS_IN_THE_PAPER.items()}
    assert verdicts(one_seed)["sgd"] is Verdict.UNDECIDED


def test_one_width_decides_nothing_about_widths():
    single = {arm: values[:1] for arm, values in AS_IN_THE_PAPER.items()}
    found = verdicts(single, widths=WIDTHS[:1])
    assert found["wider"] is found["catches up"] is Verdict.UNDECIDED


def test_runs_that_diverge_are_no_evidence():
    table = dict(AS_IN_THE_PAPER)
    table[Arm.FROZEN_SGD] = np.full_like(table[Arm.FROZEN_SGD], np.inf)
    assert verdicts(table)["sgd"] is not Verdict.HOLDS


def test_intervals_are_those_of_student():
    found = interval(np.asarray([1.0, 2.0, 3.0]))
    assert (found.mean, found.half) == pytest.approx((2.0, 4.302653 / 3**0.5), rel=1e-5)


def test_claims_read_as_sentences():
    assert str(Claim("A.", Verdict.FAILS, "1 < 2")) == "A. This does not hold here: 1 < 2"
    assert str(Claim("A.", Verdict.UNDECIDED, "1 < 2")) == "A. This is undecided here: 1 < 2"


def test_tables_are_written_as_they_are(tmp_path):
    rates = {arm: Rates(0.3, 0.01) for arm in Arm}
    setting = dataclasses.replace(Setting(), widths=WIDTHS)
    infinite = {Arm.FROZEN_SGD: (Losses(1.0, 2.0, 3.0), Losses(1.0, 2.0, 3.5))}
    found = Sernau2024(setting, "a text", rates, ("a rate",), *[AS_IN_THE_PAPER] * 3, infinite=infinite, seconds=1.0)
    found.write(tmp_path)
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    expected = [(arm.value, str(width)) for arm in Arm if arm is not Arm.STILL for width in WIDTHS]
    expected.insert(9, ("frozen, SGD", "infinite"))
    assert [(row["arm"], row["width"]) for row in rows] == [*expected, ("read-outs still", "any")]
    assert (float(rows[9]["test"]), rows[9]["seeds"]) == (3.25, "2")
    assert float(rows[0]["test"]) == pytest.approx(2.0)
    assert float(rows[0]["spread"]) == pytest.approx(0.01)
    text = (tmp_path / "results.md").read_text()
    assert "| trained | 64 | 2 | 0.01 |" in text
    assert all(claim.numbers in text for claim in found.claims())
    assert "On the edge of their grids: a rate." in text
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.png", "results.csv", "results.md"]


STEPS = (0, 1, 25, 100)


def comparison(gap, linearized, change, movement, growth=1.0):
    """Exponents of what is measured, and by how much the gap to the linearization grows at the end."""
    widths = (64, 256, 1024)
    seeds = np.exp(0.02 * np.asarray([-1.0, 0.0, 1.0, 0.5]))
    grow = lambda exponent: np.asarray(widths, float)[:, None, None] ** exponent * seeds[:, None] * np.ones(len(STEPS))
    late = grow(linearized) * np.asarray([0.0, 0.5, 1 / growth, 1.0])
    loss = np.ones((3, 4, len(STEPS)))
    curves = Curves(loss, loss, loss, grow(gap), late, grow(change), grow(movement), grow(movement))
    return Comparison(widths, STEPS, (0.1,) * 3, curves, loss, loss)


def lee_verdicts(mse, cross_entropy):
    found = {"descent": mse, "cross-entropy": cross_entropy}
    return [claim.verdict for claim in lee.claims_of(found, ("descent",), "cross-entropy")]


def test_exponents_and_growth_as_in_the_paper():
    mse, cross_entropy = comparison(-0.5, -1.0, -1.0, 0.0), comparison(-0.48, -0.6, -0.55, 0.02, growth=2.0)
    assert lee_verdicts(mse, cross_entropy) == [Verdict.HOLDS] * 5


def test_exponents_and_growth_against_the_paper():
    flat = comparison(0.0, 0.0, -0.1, 0.5, growth=0.5)
    assert lee_verdicts(flat, flat) == [Verdict.FAILS] * 5


def test_a_gap_that_falls_too_fast_is_not_that_of_the_claim():
    fast = comparison(-1.0, -1.0, -1.0, 0.0)
    assert lee_verdicts(fast, fast)[0] is Verdict.FAILS


def test_growth_on_every_loss_is_not_that_of_cross_entropy():
    mild, strong = comparison(-0.5, -1.0, -1.0, 0.0, growth=1.5), comparison(-0.5, -1.0, -1.0, 0.0, growth=4.0)
    assert lee_verdicts(mild, strong)[4] is Verdict.PARTLY
    assert lee_verdicts(strong, mild)[4] is Verdict.UNDECIDED
