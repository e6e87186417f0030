"""What is said of runs whose records are made by hand: each rule, and what it must not take for a fault."""

from types import MappingProxyType

import numpy as np
import pytest

from everwide.diagnosis._patients import _inputs
from everwide.diagnosis._verdict import Run

FACTS = {"loss": "Mse", "optimizer": "momentum", "outputs": 1, "groups": {"a": 9, "b": 9}, "batch_size": 64}
FACTS |= {"targets": {"mean": 0.0, "std": 2.0**0.5, "rms": 2.0**0.5}}  # knowing nothing costs 1
GROUP = {"gain": 1.0, "rms": 1.0, "gradient": 1.0, "update": 0.1, "dead": 0.0}
LOOK = {"record": "vitals", "value": 1.0, "gradient": 1.0, "update": 0.1, "weights": 1.0, "rate": 0.1, "descent": -0.1}
LOOK |= {"shrinking": 0.0, "start": 1.0, "after": 1.0, "far": 5.0, "groups": {"a": GROUP, "b": GROUP}}
TAIL = [0.0, 0.1, 0.3, 0.9, 1.5]  # quantiles of the losses of rows
STEPS = (0, 2, 6, 20, 100, 500, 900)


def told(values, step, first=1.0, course=None):
    """Losses of the steps up to one, as a watch tells them."""
    peak = step - len(values) + 1 + values.index(max(values))
    mean = sum(values) / len(values)
    given = {"mean": mean, "smallest": min(values), "largest": max(values), "last": values[-1], "first": first}
    return given | {"count": len(values), "peak": peak, "course": course or [[step, mean]]}


def looks(**series):
    """Vitals at some steps; a figure that is a tuple has a number for each."""
    every = [{name: v[i] if isinstance(v, tuple) else v for name, v in series.items()} for i in range(len(STEPS))]
    return [LOOK | {"step": step} | own for step, own in zip(STEPS, every, strict=True)]


def curves(ratios):
    records = zip(STEPS, ratios, strict=True)
    return [{"record": "curvature", "step": step, "ratio": ratio, "groups": {"a": 1.0}} for step, ratio in records]


def named(*records, **facts):
    verdict = Run(FACTS | facts, tuple(r for some in records for r in some)).verdict()
    assert not [note for note in verdict.notes if "lacks" in note]  # all rules have looked
    return [cause.name for cause in verdict.causes]


FALLING = (1.0, 0.8, 0.5, 0.3, 0.2, 0.1, 0.05)
FALLING_SLOWLY = (1.0, 1.0, 1.0, 0.99, 0.8, 0.7, 0.6)
EVEN = dict.fromkeys("ab", GROUP)


class TestCatapults:
    OVER = (3.0, 1.2, 0.3, 0.2, 0.2, 0.3, 0.2)

    def test_curvature_over_the_edge_at_first_is_no_fault_where_the_run_has_learned(self):
        assert named(looks(value=FALLING), curves(self.OVER)) == []

    def test_nor_is_a_loss_that_rose_at_first(self):
        rose = looks(value=(4.0, *FALLING[1:]), told=(told([1.0, 4.0], 1), *[told([0.1], s) for s in STEPS[1:]]))
        assert named(rose, curves(self.OVER)) == []

    @pytest.mark.parametrize(
        ("value", "ratios"),
        [((*FALLING[:3], 0.9, 0.9, 0.9, 0.9), OVER), (FALLING, (*OVER[:5], 2.6, 0.2))],
        ids=["nothing_learned", "not_over"],
    )
    def test_it_is_one_elsewhere(self, value, ratios):
        assert named(looks(value=value), curves(ratios)) == ["rate too large"]


class TestJumps:
    def test_one_odd_batch_late_is_none(self):
        assert named(looks(value=0.8, told=(*[told([0.9], s) for s in STEPS[:-1]], told([0.9, 1.7, 0.9], 902)))) == []

    @pytest.mark.parametrize("last", [[0.5, 3.5, 0.5, 0.5], [1.8, 1.7, 1.6]], ids=["by_far", "on_average"])
    def test_a_high_one_or_many_are(self, last):
        found = named(looks(value=0.8, told=(*[told([0.9], s) for s in STEPS[:-1]], told(last, 902))))
        assert found == ["rate too large"]


class TestNotFinite:
    GONE = dict.fromkeys(("value", "gradient", "update", "weights", "descent", "start", "after", "far"))
    GONE |= {"groups": {name: dict.fromkeys(GROUP) for name in "ab"}}

    def broken(self, values):
        start = looks(value=FALLING, told=tuple(told([v], s) for s, v in zip(STEPS, FALLING, strict=True)))[:5]
        start[-1] = start[-1] | {"told": told(values, 100)}
        jump = {"record": "event", "step": 101, "name": "spike", "figures": {"value": None, "before": 0.2}}
        return [*start, jump, *(look | self.GONE | {"told": None} for look in looks()[5:])]

    def test_at_once(self):
        cause = Run(FACTS, tuple(self.broken([0.2, 0.2]))).verdict().causes[0]
        assert cause.name == "numbers not finite"
        assert "from step 101 on" in cause.evidence

    @pytest.mark.parametrize("optimizer", ["momentum", "adam"])
    def test_after_a_loss_that_grew(self, optimizer):
        assert named(self.broken([0.2, 5.0]), optimizer=optimizer) == ["rate too large"]

    def test_after_curvature_over_the_edge(self):
        assert named(self.broken([0.2, 0.2]), curves((0.5, 0.5, 0.5, 0.5, 1.8, None, None))) == ["rate too large"]

    @pytest.mark.parametrize("first", [None, 1.0])
    def test_before_the_first_step_no_rate_was_taken(self, first):
        nothing = dict.fromkeys(("mean", "smallest", "largest", "last"))
        gone = {"first": first, "count": 2, "peak": 0, "course": [], "broken": [2, 0]} | nothing
        far = self.GONE | ({"weights": 1e9} if first else {})  # a step that was too long, from a loss that was finite
        found = [cause.name for cause in Run(FACTS, tuple(looks(**far, told=gone))).verdict().causes]
        assert found == (["rate too large"] if first else ["numbers not finite"])

    @pytest.mark.parametrize("skipped", [False, True], ids=["taken", "skipped"])
    def test_a_gradient_at_a_finite_loss(self, skipped):
        """Weights that are gone one step after a finite loss, or that stay since such steps are skipped."""
        torn = {"a": GROUP, "b": GROUP | ({"gradient": None} if skipped else {"rms": None, "gain": None})}
        here = (
            {"gradient": None, "update": 0.0} if skipped else dict.fromkeys(("value", "gradient", "weights", "update"))
        )
        verdict = Run(FACTS, tuple(looks(**here, groups=torn, told=told([1.0], 0)))).verdict()
        assert [cause.name for cause in verdict.causes] == ["numbers not finite"]
        assert "the loss was 1 at step 0, and the gradient of b was not finite" in verdict.causes[0].evidence


class TestNoStep:
    SKIPPED = told([0.9], 900) | dict.fromkeys(("mean", "smallest", "largest", "last")) | {"broken": [7, 3]}

    def cause(self, **series):
        still = {"update": 0.0, "groups": dict.fromkeys("ab", GROUP | {"update": 0.0})}
        causes = Run(FACTS, tuple(looks(**still | series))).verdict().causes
        return [(cause.name, cause.evidence, cause.remedy) for cause in causes]

    def test_of_a_rate_of_0(self):
        ((name, text, remedy),) = self.cause(rate=0.0)
        assert (name, text) == ("no step", "weights never moved in 900 steps")
        assert "a rate above 0" in remedy

    def test_of_steps_that_are_skipped(self):
        ((name, text, remedy),) = self.cause(told=self.SKIPPED)
        assert (name, "49 of the losses that were told were not finite" in text) == ("no step", True)
        assert "rows of step 3" in remedy

    def test_gradients_that_are_added_up_move_weights_between_looks(self):
        assert "no step" not in [name for name, *_ in self.cause(weights=(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.1))]

    def test_where_there_is_no_slope_there_is_no_step(self):
        still = {"groups": dict.fromkeys("ab", GROUP | {"update": 0.0, "gradient": 0.0})}
        assert "no step" not in [name for name, *_ in self.cause(gradient=0.0, value=0.01, **still)]


class TestDirections:
    def test_steps_that_climb(self):
        assert named(looks(descent=0.05, value=(1.0, 1.1, 1.2, 1.3, 1.3, 1.4, 1.4))) == ["wrong sign"]

    def test_steps_that_climb_now_and_then(self):
        mixed = (-0.05, 0.05, -0.05, 0.05, 0.05, 0.05, 0.05)
        assert named(looks(descent=mixed, value=(1.0, 1.1, 1.2, 1.3, 1.3, 1.4, 1.4))) == []

    def test_at_the_bottom_they_may(self):
        assert named(looks(descent=0.05, value=FALLING)) == []


class TestLengths:
    def test_a_rate_that_is_gone_long_before_the_end(self):
        cause = Run(FACTS, tuple(looks(value=0.8, update=(0.1, 0.1, 0.1, 0.05, 0.0, 0.0, 0.0)))).verdict().causes[0]
        assert cause.name == "schedule too short"
        assert "since step 100 of 900" in cause.evidence

    @pytest.mark.parametrize(
        ("value", "last"), [(0.8, (0.1, 0.0, 0.0)), (0.01, (0.0, 0.0, 0.0))], ids=["at_the_end", "learned"]
    )
    def test_a_schedule_that_ends_in_time(self, value, last):
        assert named(looks(value=value, update=(0.1, 0.1, 0.1, 0.1, *last))) == []

    def test_gradients_of_which_little_is_left(self):
        assert named(looks(update=1e-4)) == ["gradients clipped"]
        assert named(looks(update=2e-3)) == []

    def test_steps_that_could_be_longer(self):
        assert named(looks(far=0.95), curves([0.01] * 7)) == ["rate too small"]

    @pytest.mark.parametrize(("rate", "words"), [(0.1, "3.2 in place of 0.1"), (None, "Take 32 times the rate")])
    def test_a_rate_that_is_not_known_has_a_factor(self, rate, words):
        slowly = looks(far=0.95, groups=EVEN, rate=rate, descent=-1e-3)
        slow = Run(FACTS | {"optimizer": "adam"}, tuple(slowly)).verdict().causes
        assert (slow[0].name, words in slow[0].remedy) == ("rate too small", True)

    @pytest.mark.parametrize(
        ("ratio", "rate"),
        [(0.0, "3.2"), (-0.4, "3.2"), (1e-7, "3.2"), (0.015, "2")],
        ids=["0", "less", "tiny", "some"],
    )
    def test_they_are_looked_at_up_to_32_times(self, ratio, rate):
        (cause,) = Run(FACTS, (*looks(far=0.95), *curves([ratio] * 7))).verdict().causes
        assert (cause.name, cause.remedy) == ("rate too small", f"Take a rate of {rate} in place of 0.1")

    def test_steps_that_could_not_in_the_end(self):
        assert named(looks(far=(0.9, 0.9, 0.9, 0.9, 0.8, 1.2, 1.6)), curves([0.01] * 7)) == []

    @pytest.mark.parametrize(
        ("rate", "value", "names"),
        [(2e-4, FALLING_SLOWLY, ["rate too small"]), (2e-3, FALLING_SLOWLY, []), (2e-4, 0.9, [])],
        ids=["slight", "usual", "still"],
    )
    def test_slight_steps_of_adam_are_noisy_and_too_small(self, rate, value, names):
        far = (0.9, 0.9, 0.9, 0.9, 1.6, 1.2, 0.9)
        assert named(looks(far=far, value=value, rate=rate, groups=EVEN, descent=-1e-3), optimizer="adam") == names

    @pytest.mark.parametrize(("descent", "names"), [(-1e-3, ["rate too small"]), (-1e-2, [])], ids=["slow", "fast"])
    def test_a_loss_that_would_halve_many_times_falls_fast_enough(self, descent, names):
        assert named(looks(far=0.9, value=0.9, groups=EVEN, descent=descent), optimizer="adam") == names

    @pytest.mark.parametrize("apart", [10, 300], ids=["many_looks", "few"])
    def test_a_loss_that_falls_slowly_does_so_however_often_one_looks(self, apart):
        slight = LOOK | {"rate": 2e-4, "far": 1.1, "groups": EVEN, "descent": -1e-3}
        falling = [slight | {"step": step, "value": 1 - step / 1800} for step in range(0, 901, apart)]
        assert named(falling, optimizer="adam") == ["rate too small"]

    def test_weights_that_are_lost_have_not_decayed(self):
        lost = looks(value=0.95, weights=(1.0, 1.0, 1.0, 1.0, None, None, None))
        assert named(lost, curves((1.8, *[0.2] * 6))) == ["rate too large"]

    def test_weights_that_decay(self):
        shrinking = (1.0, 0.9, 0.7, 0.5, 0.3, 0.2, 0.2)
        assert named(looks(value=0.9, weights=shrinking)) == ["weight decay too large"]
        assert named(looks(value=0.95, weights=shrinking), curves((1.8, *[0.2] * 6))) == ["weight decay too large"]
        assert named(looks(value=FALLING, weights=shrinking)) == []

    @pytest.mark.parametrize(("end", "names"), [(0.4, ["weight decay too large"]), (0.3, [])], ids=["held", "falls"])
    def test_weights_that_decay_until_a_loss_stands_still(self, end, names):
        assert (
            named(looks(value=(1.0, 0.8, 0.6, 0.4, 0.4, 0.4, end), weights=(1, 0.8, 0.5, 0.3, 0.3, 0.3, 0.3))) == names
        )


class TestSmallBatches:
    JUMPS = tuple({"record": "event", "step": s, "name": "spike", "figures": {"value": 1.2}} for s in (200, 300, 400))

    def noise(self, scale):
        return [{"record": "noise", "step": step, "scale": scale} for step in STEPS]

    @pytest.mark.parametrize(("size", "names"), [(8, []), (2, ["batch too small"]), (32, ["rate too large"])])
    def test_rows_that_are_odd_make_batches_jump(self, size, names):
        assert named(looks(value=0.6, quantiles=TAIL), self.JUMPS, self.noise(12.0), batch_size=size) == names

    @pytest.mark.parametrize(
        ("value", "scale", "names"),
        [(FALLING, 200.0, []), (0.6, 1e3, []), (0.95, 100.0, ["batch too small"])],
        ids=["learned", "noise_is_left", "not_learned"],
    )
    def test_noise_that_does_no_harm(self, value, scale, names):
        assert named(looks(value=value, quantiles=TAIL), self.noise(scale), batch_size=10) == names

    @pytest.mark.parametrize(("scale", "names"), [(30.0, []), (50.0, ["batch too small"])])
    def test_of_very_few_rows_all_is_noise(self, scale, names):
        assert named(looks(value=FALLING, quantiles=TAIL), self.noise(scale), batch_size=3) == names

    def test_of_large_batches_the_probe_is_too_small_to_tell(self):
        assert named(looks(value=0.6, quantiles=TAIL), self.noise(1e5), batch_size=128) == []


def test_copies_are_odd_where_there_could_be_many_other_rows():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (128, 7)).astype(float)
    assert _inputs(bits)["repeated"] == 0
    assert _inputs(rng.normal(size=(32, 7))[np.arange(128) % 32])["repeated"] == 0.75


@pytest.mark.parametrize(("mean", "last", "names"), [(0.5, 0.17, []), (0.1, 0.17, ["weight decay too large"])])
def test_knowing_nothing_about_two_classes_costs_their_entropy(mean, last, names):
    facts = {"loss": "BinaryCrossEntropy", "targets": {"mean": mean, "std": 0.5, "rms": 0.5}}
    shrinking = (1.0, 0.9, 0.7, 0.5, 0.3, 0.2, 0.2)
    assert named(looks(value=last, weights=shrinking), **facts) == names  # of 0.69, or of 0.33


class TestRows:
    LEARNED_IN_TURN = tuple(told([0.01, 3.0], s) if s > 90 else told([1.0], s) for s in STEPS)

    def test_batches_that_are_learned_and_forgotten_in_turn(self):
        assert named(looks(value=0.9, told=self.LEARNED_IN_TURN)) == ["rows not shuffled"]

    def test_small_ones_are_learned_by_chance(self):
        assert named(looks(value=0.9, told=self.LEARNED_IN_TURN), batch_size=16) == ["rate too large"]

    def test_a_probe_that_is_worse_than_all_batches_is_of_other_rows(self):
        assert named(looks(value=0.9, told=tuple(told([0.01, 0.02], s) for s in STEPS))) == []


@pytest.mark.parametrize(
    ("loss", "share", "names"),
    [("SoftmaxCrossEntropy", 1.0, ["softmax twice"]), ("SoftmaxCrossEntropy", 0.9, []), ("Mse", 1.0, [])],
)
def test_outputs_that_are_probabilities(loss, share, names):
    sure = {"quantiles": TAIL, "accuracy": 1.0, "near": 0.0}
    assert named(looks(value=FALLING, chances=share, **sure), loss=loss, outputs=3, classes=[5, 5, 5]) == names


class TestSilentLayers:
    SILENT = GROUP | {"gradient": 0.0, "dead": 1.0}

    def cause(self, **layers):
        groups = dict.fromkeys("abcd", GROUP) | layers
        causes = Run(FACTS | {"groups": dict.fromkeys("abcd", 9)}, tuple(looks(groups=groups))).verdict().causes
        return [(cause.name, cause.evidence) for cause in causes][:1]

    def test_the_one_before_which_nothing_flows_and_behind_which_biases_still_learn(self):
        ((name, text),) = self.cause(a=self.SILENT, b=self.SILENT, c=GROUP | {"dead": 1.0})
        assert name == "dead units"
        assert "of b have" in text

    def test_weights_that_began_at_0(self):
        ((name, text),) = self.cause(a=self.SILENT, b=self.SILENT | {"gain": 0.0}, c=GROUP | {"dead": 1.0})
        assert (name, text[:23]) == ("initialization", "the weights of b began ")

    def test_before_a_branch_that_begins_at_0_it_is_so_at_the_first_step_only(self):
        first = {"groups": EVEN | {"a": self.SILENT}}
        assert named([looks(value=FALLING)[0] | first, *looks(value=FALLING)[1:]]) == []

    def test_of_what_is_not_finite_at_the_next_look_nothing_is_missing(self):
        begin = looks(groups=EVEN | {"a": GROUP | {"dead": 0.6}})[0]
        broken = {"value": None, "weights": None, "groups": EVEN | {"a": GROUP | {"gain": None, "rms": None}}}
        end = {"record": "event", "step": 2, "name": "non-finite", "figures": {}}
        assert named([begin, *(look | broken for look in looks()[1:]), end]) == ["rate too large"]


class TestLayers:
    @pytest.mark.parametrize(
        ("slopes", "names"),
        [
            ((1e-6, 1e-5, 1e-6, 1.0), []),
            ((1e-6, 1e-3, 1e-1, 1.0), ["vanishing signals"]),
            ((1.0, 0.1, 1e-2, 1e-5), ["exploding signals"]),
        ],
        ids=["last_began_at_0", "vanish", "explode"],
    )
    def test_gradients_that_differ_by_more_than_what_a_small_last_layer_does(self, slopes, names):
        groups = {name: GROUP | {"gradient": slope} for name, slope in zip("abcd", slopes, strict=True)}
        assert named(looks(value=FALLING, groups=groups), groups=dict.fromkeys("abcd", 9)) == names

    def test_one_that_is_faster_than_adam_lets_it(self):
        wild = {"a": GROUP | {"update": 5.0}, "b": GROUP, "c": GROUP}
        facts = {"optimizer": "adam", "groups": {"a": 9, "b": 9, "c": 9}}
        rose = looks(groups=wild, told=(told([1.0, 4.0], 1), *[told([0.6], s) for s in STEPS[1:]]))
        cause = Run(FACTS | facts, tuple(rose)).verdict().causes[0]
        assert (cause.name, cause.remedy) == ("rate too large", "Give a the rate of the other layers")
        calm = [look | {"groups": dict.fromkeys("abc", GROUP)} for look in rose]
        assert named(calm, **facts) == ["no warm-up"]

    @pytest.mark.parametrize(
        ("biases", "update", "name"),
        [
            (50.0, 0.1, "initialization"),
            (0.0, 0.1, "exploding signals"),
            (50.0, 48.0, "exploding signals"),
            (50.0, None, "exploding signals"),
        ],
        ids=["large", "none", "moved", "torn"],
    )
    def test_biases_that_make_a_loss_explode(self, biases, update, name):
        layers = {"a": GROUP | {"biases": biases, "update": update}, "b": GROUP | {"biases": 0.1}}
        assert named(
            looks(groups=layers, told=(told([40.0], 0, first=40.0), *[told([0.1], s) for s in STEPS[1:]]))
        ) == [name]


class TestClasses:
    FACTS = MappingProxyType({"loss": "SoftmaxCrossEntropy", "outputs": 3, "classes": [40, 40, 40], "rows": 120})
    SURE = MappingProxyType({"quantiles": TAIL, "accuracy": 0.9, "near": 0.1})

    def test_a_rare_class_is_no_explosion(self):
        """Knowing how rare it is costs little, and not knowing it, as all do in the beginning, much more."""
        begins = looks(value=(0.7, 0.5, 0.3, 0.1, 0.02, 0.01, 0.01), told=told([0.8], 0, first=0.8), **self.SURE)
        assert named(begins, **self.FACTS | {"outputs": 2, "classes": [127, 1]}) == []

    @pytest.mark.parametrize("accuracy", [0.35, 0.9])
    def test_what_costs_as_much_as_nothing_and_is_right_is_learned(self, accuracy):
        found = named(looks(value=1.1, quantiles=TAIL, accuracy=accuracy, near=0.1), **self.FACTS)
        assert found == ([] if accuracy > 0.5 else ["wrong labels"])

    @pytest.mark.parametrize(("step", "then", "names"), [(40, 0.3, ["wrong labels"]), (40, 0.1, []), (4, 0.3, [])])
    def test_rows_that_surprise_at_first_do_so_no_more(self, step, then, names):
        look = LOOK | {"value": 0.9, "quantiles": [0.1, 0.2, 0.3, 2.0, 4.0], "surprising": [3], "near": 0.0}
        course = [(step, 0.7), (2 * step, 1 - then), (1000, 1.0)]
        every = [look | {"step": at, "accuracy": right, "value": 0.9 if at < 1000 else 0.01} for at, right in course]
        every[1]["told"] = told([0.9], 2 * step, course=[[2 * step, 0.9]])
        assert named(every, **self.FACTS) == names

    def test_targets_that_are_1_for_a_class_have_a_loss_of_knowing_nothing(self):
        """0.33 for three classes: a loss that came down to it from 6 has taught nothing."""
        stays = looks(value=(6.0, 2.0, 0.4, 0.35, 0.34, 0.34, 0.34), **self.SURE | {"accuracy": 0.3})
        units = [look | {"groups": {"a": GROUP | {"dead": min(1.0, look["step"] / 100)}, "b": GROUP}} for look in stays]
        (cause,) = Run(FACTS | self.FACTS | {"loss": "Mse"}, tuple(units)).verdict().causes
        assert (cause.name, "100 % of a layer's units died" in cause.evidence) == ("rate too large", True)


class TestOtherRows:
    def found(self, batches, **series):
        rows = {"value": (1.0, 1.0, 0.9, 0.8, 0.7, 0.6, 0.6), "quantiles": [0.2, 0.5, 0.8, 1.4, 2.0]} | series
        return named(looks(told=tuple(told([v], s) for v, s in zip(batches, STEPS, strict=True)), **rows), rows=128)

    def test_batches_that_are_far_below_and_above_the_probe_in_turn(self):
        assert self.found((0.2, 0.1, 2.4, 0.1, 1.3, 0.1, 0.1)) == ["rows not shuffled"]

    @pytest.mark.parametrize(
        "batches", [(0.1,) * 7, (2.4, 2.3, 2.2, 2.1, 2.0, 1.9, 1.9), (0.9, 1.1, 1.0, 0.7, 0.8, 0.6, 0.6)]
    )
    def test_others_may_have_other_rows_or_a_penalty(self, batches):
        """All below: the probe is of other rows; all above: dropout, say; and chance."""
        assert self.found(batches) in ([], ["rate too large"] if max(batches) > 1.5 else [])

    def test_few_rows_that_hold_all_of_a_loss_are_chance(self):
        assert self.found((0.2, 0.1, 1.4, 0.1, 1.3, 0.1, 0.1), quantiles=[0.0, 0.0, 0.001, 0.2, 3.0]) == []


class TestSaturation:
    @pytest.mark.parametrize(
        ("gains", "rms", "value", "names"),
        [
            ((30.0, 30.0, 1.0), 1.0, 0.8, ["initialization"]),
            ((30.0, 30.0, 1.0), 0.1, 0.8, []),
            ((4.0, 4.0, 1.0), 1.0, 0.8, []),
            ((30.0, 30.0, 1.0), 1.0, FALLING, []),
        ],
        ids=["wide", "sparse", "usual", "learned"],
    )
    def test_weights_of_most_layers_that_are_too_large(self, gains, rms, value, names):
        groups = {name: GROUP | {"gain": gain, "rms": gain} for name, gain in zip("abc", gains, strict=True)}
        inputs = {"mean": 0.0, "std": rms, "rms": rms, "finite": 1.0, "constant": 0.0, "repeated": 0.0}
        facts = {"groups": dict.fromkeys("abc", 9), "inputs": inputs | {"smallest_std": rms, "largest_std": rms}}
        assert named(looks(value=value, groups=groups), **facts) == names

    def test_what_a_long_first_step_has_made_of_a_layer_did_not_begin(self):
        """Two layers that do not move beside one that the first step has made 16 times as large."""
        groups = dict.fromkeys("ab", GROUP | {"update": 0.0}) | {
            "c": GROUP | {"gain": 16.0, "rms": 16.0, "update": 48.0}
        }
        assert "initialization" not in named(looks(value=0.8, groups=groups), groups=dict.fromkeys("abc", 9))


@pytest.mark.parametrize(("end", "names"), [(1.0, ["vanishing signals"]), (0.6, [])], ids=["stuck", "learns"])
def test_gradients_that_are_uneven_matter_where_nothing_is_learned(end, names):
    groups = {name: GROUP | {"gradient": slope} for name, slope in zip("abcd", (1e-4, 1e-2, 1e-1, 1.0), strict=True)}
    assert named(looks(value=(*(1.0,) * 6, end), groups=groups), groups=dict.fromkeys("abcd", 9)) == names


@pytest.mark.parametrize(("size", "names"), [(8, []), (64, ["exploding signals"])])
def test_the_first_loss_of_a_few_odd_rows_is_no_explosion(size, names):
    begins = looks(value=FALLING, told=(told([8.0], 0, first=8.0), *[told([0.1], s) for s in STEPS[1:]]))
    assert named(begins, batch_size=size) == names


@pytest.mark.parametrize(("kind", "names"), [("gd", []), ("momentum", ["rate too large"])])
def test_a_rate_that_was_measured_is_known_roughly(kind, names):
    assert named(looks(value=FALLING), curves((1.0, 1.0, 1.0, 1.0, 1.5, 1.5, 2.6)), optimizer=kind) == names


@pytest.mark.parametrize(("end", "names"), [(1.01, []), (1.4, ["wrong sign"])])
def test_a_loss_that_hardly_rose_does_not_climb(end, names):
    assert named(looks(descent=0.05, value=(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, end))) == names
