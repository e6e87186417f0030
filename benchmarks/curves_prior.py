"""The prior of `everwide.forecasting.extrapolate`, learned from the curves of LCDB 1.1: `make curves-prior`.

Mean test errors of 27 learners on 159 data sets (Yan, Mohr, Viering, 2025; CC BY 4.0) are cut at many sizes, all of the
sizes or few of them, as they are or with more noise; three ensembles of small networks learn quantiles of how the error
goes on: of a curve alone, with its learner, and with curves of cheap learners on the same rows. Intervals are stretched
by what networks say about data sets that they have not seen. The numbers are written to
`src/everwide/forecasting/_curves.npz`.
"""

import functools
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
import warnings
from pathlib import Path
from typing import NamedTuple

import data
import numpy as np
from curves_learners import CHEAP, FAMILIES, FAMILY, LEARNERS, NAMES

from everwide.forecasting import _curves

STARTS = (45, 64, 91, 128, 181, 256, 362, 512, 724, 1024, 1448, 2048, 4096, 8192)
FACTORS = np.array([2**0.5, 2, 4, 8, 16, 32, 64])
LEAST = 0.01  # errors below are not learned, nor measured
FOLDS, MEMBERS = 5, 10
QUANTILES = np.array([0.05, 0.25, 0.5, 0.75, 0.95], np.float32)
TOLD = 2.5  # a learner that is named, among inputs of variance 1
INPUTS, PANEL = 55, 10
LEARNER = slice(INPUTS, INPUTS + len(FAMILIES) + len(NAMES))
NAME, OTHERS = slice(LEARNER.start + len(FAMILIES), LEARNER.stop), slice(LEARNER.stop, LEARNER.stop + PANEL)
NETWORKS = ("alone", "learner", "others")
WIDTH, STEPS, BATCH, RATE, DECAY = 40, 2500, 512, 3e-3, 0.03
NOISE = {"alone": 0.15, "learner": 0.15, "others": 0.3}  # on the inputs, while networks learn
UNUSUAL = {"alone": 0.1, "learner": 0.1, "others": 1.0}  # the weight of TabNet, whose curves are flat, then fall
TOLD_NAME = {"alone": 0.0, "learner": 0.5, "others": 0.25}  # how often, while networks learn
# The share that each end of an interval shall hold: monotone beginnings, others. An ensemble says less than a member.
BETA, BETA_OF = (0.94, 0.972), {"network": (0.958, 0.985), "linear": (0.93, 0.965), "nothing": (0.94, 0.985)}
OUTPUT = Path(_curves.__file__).with_name("_curves.npz")


class Lcdb(NamedTuple):
    """Mean test errors (set, learner, size), and their standard errors."""

    sizes: np.ndarray
    errors: np.ndarray
    stderr: np.ndarray


@functools.cache
def lcdb() -> Lcdb:
    """The learners in our order; the one that only knows the most frequent class is left out."""
    with np.load(data.folder() / "lcdb_curves.npz") as file:
        order = [list(file["learners"]).index(name) for name in LEARNERS]
        errors, stderr = (file["error"][:, :, kind, :, 2][:, order].astype(np.float64) for kind in (0, 1))
        return Lcdb(file["anchors"].astype(np.float64), errors, stderr)


class Table(NamedTuple):
    """One row for each curve, where it is cut, and factor. `target`: log of the error over the shapes' forecast."""

    x: np.ndarray  # inputs, learner, others
    target: np.ndarray
    center: np.ndarray  # the shapes' log forecast
    set: np.ndarray  # -1: a made-up curve
    learner: np.ndarray
    start: np.ndarray
    factor: np.ndarray
    whole: np.ndarray  # all sizes, no more noise than they have

    def take(self, rows: np.ndarray) -> "Table":
        return Table(*(column[rows] for column in self))


class Cut(NamedTuple):
    """Which sizes below a start are seen, and how well."""

    thin: int = 1
    octaves: float = 99
    noise: float = 0
    noted: bool = True


def told(learner: np.ndarray) -> np.ndarray:
    """Family and name of learners, as networks see them."""
    return TOLD * np.concatenate([np.eye(len(FAMILIES))[FAMILY[learner]], np.eye(len(NAMES))[learner]], 1)


def sizes_of(start: int, cut: Cut) -> np.ndarray:
    """Places of the sizes that are seen."""
    last = int(np.abs(np.log(lcdb().sizes / start)).argmin())
    at = np.arange(last, -1, -cut.thin)[::-1]
    near = at[np.log2(lcdb().sizes[last] / lcdb().sizes[at]) <= cut.octaves + 1e-3]
    return near if len(near) >= 4 else at[-4:]


def cut_curves(start: int, sets: np.ndarray, cut: Cut, rng: np.random.Generator) -> Table:
    """All curves of the sets that reach this size."""
    curves, at = lcdb(), sizes_of(start, cut)
    seen = np.isfinite(curves.errors[:, :, at])
    which, learner = np.nonzero(seen[:, :, -1] & (seen.mean(2) > 0.6) & sets[:, None])
    sizes, errors, stderr = curves.sizes[at], curves.errors[which, learner][:, at], curves.stderr[which, learner][:, at]
    for row in np.flatnonzero(~np.isfinite(errors).all(1)):
        there = np.isfinite(errors[row])
        for values in (errors, stderr):
            values[row] = np.interp(np.log(sizes), np.log(sizes[there]), values[row, there])
    stderr = np.nan_to_num(stderr, nan=0.01)
    if cut.noise:
        noise = cut.noise * np.maximum(stderr, 0.002) * rng.standard_normal(errors.shape)
        errors, stderr = np.clip(errors + noise, _curves.SMALLEST / 2, 1), stderr * np.hypot(1, cut.noise)
    begun = _curves.beginning(sizes, errors, stderr if cut.noted else np.nan * stderr)
    ahead = np.array([np.abs(np.log(curves.sizes / (factor * sizes[-1]))).argmin() for factor in FACTORS])
    parts = [_curves.features(_part(begun, rows), curves.sizes[ahead]) for rows in _chunks(len(errors))]
    inputs, centers = (np.concatenate(part) for part in zip(*parts, strict=True))
    panel = CHEAP & (rng.random((len(sets), len(NAMES))) < (1 if cut == Cut() else 0.7))
    others = np.stack([_others(row, which, learner, panel, inputs, centers) for row in range(len(which))])
    truth = curves.errors[which, learner][:, ahead]
    return _table(inputs, centers, others, truth, which, learner, start, cut == Cut())


def _part(begun: _curves.Beginning, rows: slice) -> _curves.Beginning:
    return begun._replace(errors=begun.errors[rows], stderr=begun.stderr[rows])


def _chunks(n: int) -> list[slice]:
    return [slice(at, at + 250) for at in range(0, n, 250)]


def _others(row, which, learner, panel, inputs, centers) -> np.ndarray:
    """What the cheap learners on the same data set say about a curve."""
    same = np.flatnonzero((which == which[row]) & panel[which[row], learner] & (learner != learner[row]))
    rows = np.append(row, same)
    return _curves.beside(inputs[rows], centers[rows])


def _table(inputs, centers, others, truth, which, learner, start, whole) -> Table:
    curves, factors = truth.shape
    each = lambda values: np.repeat(values[:, None], factors, 1)
    x = np.concatenate([inputs, each(told(learner)), others], -1).astype(np.float32)
    target = np.log(np.where(truth >= LEAST, truth, np.nan)) - centers
    same = lambda value: np.full((curves, factors), value)
    columns = (x, target, centers, each(which), each(learner), same(start), inputs[..., -1], same(whole))
    flat = Table(*(column.reshape(curves * factors, *column.shape[2:]) for column in columns))
    return flat.take(np.isfinite(flat.target))


def made_up(start: int, rng: np.random.Generator, curves: int = 200) -> Table:
    """Exact power laws, half of them with a floor: where a shape fits to many digits, it goes on."""
    sizes = lcdb().sizes[sizes_of(start, Cut(thin=int(rng.choice([1, 4, 8]))))]
    exponent, floor = rng.uniform(0.05, 1.2, (curves, 1)), rng.uniform(-1, 1, (curves, 1)).clip(0)
    level = np.exp(rng.uniform(np.log(0.02), np.log(0.6), (curves, 1)))
    law = lambda n: level * (floor + (1 - floor) * (n / sizes[-1]) ** -exponent)
    errors = law(sizes)
    ahead = sizes[-1] * FACTORS
    stderr = np.broadcast_to(rng.choice([1e-4, 1e-3, np.nan], (curves, 1)), errors.shape) * errors
    inputs, centers = _curves.features(_curves.beginning(sizes, errors, stderr), ahead)
    learner = rng.integers(0, len(NAMES), curves)
    others = np.full((*centers.shape, PANEL), np.nan)
    keep = errors[:, 0] <= 1
    parts = (part[keep] for part in (inputs, centers, others, law(ahead), np.full(curves, -1), learner))
    return _table(*parts, start, False)


@functools.cache
def rows() -> Table:
    """Every set, cut at every start: whole, and once more in some other way; and made-up curves."""
    rng, sets = np.random.default_rng(0), np.ones(len(lcdb().errors), bool)
    parts = []
    for start in STARTS:
        parts.append(cut_curves(start, sets, Cut(), rng))
        groups = rng.integers(0, 3, len(sets))
        for group in range(3):
            cut = Cut(*(rng.choice(of).item() for of in ((1, 2, 4, 8), (99, 3, 2), (0, 1, 2.5, 5), (True, False))))
            if cut != Cut():
                parts.append(cut_curves(start, groups == group, cut, rng))
        parts.append(made_up(start, rng))
    return Table(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@functools.cache
def folds(seed: int = 0) -> np.ndarray:
    """Of the data sets, balanced in the length of their curves."""
    rng, seen = np.random.default_rng(seed), np.isfinite(lcdb().errors).any(1).sum(1)
    order, fold = np.argsort(seen + 0.1 * rng.random(len(seen))), np.zeros(len(seen), int)
    for block in np.array_split(order, range(FOLDS, len(seen), FOLDS)):
        fold[block] = rng.permutation(FOLDS)[: len(block)]
    return fold


def fold_of(table: Table) -> np.ndarray:
    """Of each row; made-up curves belong to none."""
    return np.where(table.set < 0, -1, folds()[table.set])


def scaled(x: np.ndarray, network: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Center and scale of the inputs, and which of them the network sees."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any number
        center, scale = np.nanmedian(x[::10], 0), np.nanstd(x[::10], 0) + 1e-6
    center[LEARNER], scale[LEARNER] = 0, 1
    seen = np.ones(x.shape[1], np.float32)
    seen[LEARNER], seen[OTHERS] = network != "alone", network == "others"
    return np.where(seen, center, 0), np.where(seen, scale, 1), seen


def hidden(x: np.ndarray, network: str, rng: np.random.Generator) -> None:
    """Some names, and with other curves a fifth of the families, are not told."""
    x[:, NAME] *= rng.random((len(x), 1)) < TOLD_NAME[network]
    if network == "others":
        x[:, LEARNER] *= rng.random((len(x), 1)) < 0.8


def learn(network: str, without: frozenset[int], seed: int) -> list[np.ndarray]:
    """Center, scale, and weights of one network that has not seen some folds: pinball loss, Adam, cosine decay."""
    table, rng, f4 = rows(), np.random.default_rng([seed, *without, NETWORKS.index(network)]), np.float32
    use = ~np.isin(fold_of(table), tuple(without))
    if network == "others":
        use &= np.isfinite(table.x[:, OTHERS.start]) | (table.set < 0)
    use = np.flatnonzero(use)
    center, scale, seen = scaled(table.x[use], network)
    x = seen * np.clip(np.nan_to_num((table.x[use] - center) / scale), -4, 4).astype(f4)
    weight = np.where(table.learner[use] == NAMES.index("tabnet"), UNUSUAL[network], 1.0)
    weight *= np.where(table.start[use] >= 128, 1, 0.5) * np.where(table.factor[use] >= 1.9, 1, 0.5)
    chances, target = np.cumsum(weight / weight.sum()), table.target[use].astype(f4)
    normal = lambda fan_in, fan_out, gain: (
        rng.standard_normal((fan_in, fan_out))
        * np.sqrt(gain / max(fan_in, seen.sum()) if fan_in > WIDTH else gain / fan_in)
    ).astype(f4)
    p = [normal(len(seen), WIDTH, 2), 0, normal(WIDTH, WIDTH, 2), 0, normal(WIDTH, len(QUANTILES), 0.01), 0]
    p[1::2] = [np.zeros(p[at].shape[1], f4) for at in (0, 2, 4)]
    moments = [(np.zeros_like(each), np.zeros_like(each)) for each in p]
    for step in range(STEPS):
        batch = np.minimum(np.searchsorted(chances, rng.random(BATCH)), len(use) - 1)
        inputs = x[batch]
        hidden(inputs, network, rng)
        inputs += f4(NOISE[network]) * seen * rng.standard_normal(inputs.shape, dtype=f4)
        rate = f4(RATE / 2 * (1 + np.cos(np.pi * step / STEPS)))
        for each, gradient, moment in zip(p, _gradients(p, inputs, target[batch]), moments, strict=True):
            _adam(each, gradient, moment, rate, step)
    p[0] *= seen[:, None]
    return [center, scale, *p[:4], p[4][:, ::2], p[5][::2]]


def _gradients(p: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    z1 = x @ p[0] + p[1]
    s1 = 1 / (1 + np.exp(-z1))
    h1 = z1 * s1
    z2 = h1 @ p[2] + p[3]
    s2 = 1 / (1 + np.exp(-z2))
    h2 = z2 * s2
    g3 = np.where(y[:, None] > h2 @ p[4] + p[5], -QUANTILES, 1 - QUANTILES) / np.float32(len(x))
    g2 = (g3 @ p[4].T) * (s2 * (1 + z2 * (1 - s2)))
    g1 = (g2 @ p[2].T) * (s1 * (1 + z1 * (1 - s1)))
    return [x.T @ g1, g1.sum(0), h1.T @ g2, g2.sum(0), h2.T @ g3, g3.sum(0)]


def _adam(each: np.ndarray, gradient: np.ndarray, moment: tuple[np.ndarray, ...], rate: np.float32, step: int) -> None:
    first, second = moment
    first += np.float32(0.1) * (gradient - first)
    second += np.float32(0.001) * (gradient**2 - second)
    size = np.sqrt(second / np.float32(1 - 0.999 ** (step + 1))) + np.float32(1e-8)
    each -= rate * (first / np.float32(1 - 0.9 ** (step + 1)) / size + np.float32(DECAY) * each)


def ensemble(network: str, without: frozenset[int], seeds: int) -> dict[str, np.ndarray]:
    """Several networks that differ by their seed, in the precision in which they are shipped."""
    parts = zip(*(learn(network, without, seed) for seed in range(seeds)), strict=True)
    kinds = (np.float32, np.float32, *[np.float16] * 6)
    return {
        f"{network}.{at}": np.stack(part).astype(kind) for at, (part, kind) in enumerate(zip(parts, kinds, strict=True))
    }


def group_of(learner: np.ndarray, named: str) -> np.ndarray:
    """Whose intervals hold for rows whose learner's family, name, or nothing is known."""
    return np.full(len(learner), len(FAMILIES)) if named == "nothing" else FAMILY[learner] + 7 * (named == "name")


def shown(x: np.ndarray, network: str, named: str) -> np.ndarray:
    """What a network sees when the learner's family, name, or nothing is known."""
    x = x.astype(np.float64)
    if named != "name":
        x[:, NAME if named == "family" else LEARNER] = 0
    return x if network == "others" else np.concatenate([x[:, : OTHERS.start], np.nan * x[:, OTHERS]], 1)


USES = {"alone": ("nothing",), "learner": ("family", "name"), "others": ("nothing", "family", "name")}


def mix(network: str) -> np.ndarray:
    """For each group the weight of a network's own ensemble, and that of POW3: curves of networks are few."""
    groups = np.arange(2 * len(FAMILIES) + 1)
    networks = groups % (len(FAMILIES) + 1) == 0
    own = np.where((network != "others") | networks, 1.0, np.where(groups == len(FAMILIES), 0.25, 0.5))
    pull = {"alone": 0.1, "learner": 0.3, "others": 0.0}[network] * (networks | (network == "alone"))
    return np.stack([own, pull], 1).astype(np.float32)


@functools.cache
def alone(network: str, without: frozenset[int]) -> dict[str, np.ndarray]:
    """One network, for what it says of data sets that it has not seen."""
    return ensemble(network, without, 1) | {f"{network}.mix": mix(network)}


def beta(group: int, network: str) -> tuple[float, float]:
    """Of a group of learners; where other curves are known, those of networks need no more than the rest."""
    word = [*FAMILIES, "nothing"][group % (len(FAMILIES) + 1)]
    return BETA if word == "network" and (network == "others" or group > 0) else BETA_OF.get(word, BETA)


def calibration(network: str, outer: int | None) -> dict[str, np.ndarray]:
    """How far intervals must be stretched: by factor, then by group and whether a beginning rises."""
    table, fold, scores = rows(), fold_of(rows()), []
    for left in sorted(set(range(FOLDS)) - {outer}):
        without = frozenset({left} | ({outer} - {None}))
        numbers = {key: value for each in NETWORKS for key, value in alone(each, without).items()}
        use = (fold == left) & (table.factor > 0.9)
        if network == "others":
            use &= np.isfinite(table.x[:, OTHERS.start])
        for named in USES[network]:
            groups = group_of(table.learner, named)
            for group in np.unique(groups):
                part = table.take(use & (groups == group))
                said = _curves.ensemble(numbers, network, int(group), shown(part.x, network, named))
                width = _curves.WIDTH + np.abs(said[:, [0, 2]] - said[:, [1]])
                score = (part.target[:, None] - said[:, [1]]) * [-1, 1] / width
                rising = part.x[:, _curves.RISE] > _curves.RISING
                scores.append(np.column_stack([score, part.factor, 0 * rising + group, rising]))
    score = np.concatenate(scores)
    knot = np.abs(score[:, [2]] - np.array(_curves.KNOTS)).argmin(1)
    knots = np.stack([np.quantile(score[knot == at, :2], 0.95, axis=0) for at in range(len(_curves.KNOTS))])
    score[:, :2] /= knots[knot]
    groups = np.ones((13, 2, 2), np.float32)
    for group in np.unique(score[:, 3]).astype(int):
        for rising in (0, 1):
            held = score[(score[:, 3] == group) & (score[:, 4] == rising), :2]
            groups[group, rising] = np.quantile(held, beta(group, network)[rising], axis=0)
    return {f"{network}.knots": knots.astype(np.float32), f"{network}.groups": groups}


def learned(outer: int | None = None, members: int = MEMBERS) -> dict[str, np.ndarray]:
    """All numbers of the prior, from all folds but one."""
    every, nothing = np.arange(len(NAMES)), np.zeros((1, LEARNER.stop - LEARNER.start))
    families = TOLD * np.eye(len(FAMILIES), nothing.size)
    source = "Learned from LCDB 1.1 (Yan, Mohr, Viering, 2025), CC BY 4.0, by benchmarks/curves_prior.py."
    numbers: dict[str, np.ndarray] = {
        "words": np.array(["", *FAMILIES, *NAMES]),
        "told": np.concatenate([nothing, families, told(every)]).astype(np.float16),
        "group": np.concatenate([[len(FAMILIES)], range(len(FAMILIES)), group_of(every, "name")]).astype(np.int8),
        "source": np.array(source),
    }
    for network in NETWORKS:
        numbers |= ensemble(network, frozenset({outer} - {None}), members) | calibration(network, outer)
        numbers |= {f"{network}.mix": mix(network)}
    return numbers


def main() -> None:
    """Learn, and write."""
    begin = time.process_time()
    print(f"{len(rows().target)} rows, {time.process_time() - begin:.0f} s of CPU", flush=True)
    np.savez_compressed(OUTPUT, **learned())
    print(f"{OUTPUT.name}: {OUTPUT.stat().st_size / 1000:.0f} kB, {time.process_time() - begin:.0f} s of CPU")


if __name__ == "__main__":
    main()
