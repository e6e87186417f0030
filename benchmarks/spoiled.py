"""Small tables as people have them: rows and columns of the shared sets, with what goes wrong in real ones.

Everything is drawn from the seed of a table; the same number gives the same table. Only training rows of the first
published split of each set are used.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import data
import numpy as np
import pandas as pd

_ROWS = 50, 400  # to learn from
_FEWEST_ASIDE, _MOST_ASIDE = 100, 1000  # to be judged by
_MOST_COLUMNS = 30
_OFTEN, _SELDOM = 0.35, 0.12  # how often a table is spoiled in one way, and its target


class Table(NamedTuple):
    """A frame to learn from and one to be judged by; `story` says what was done."""

    seed: int
    classes: bool
    x: pd.DataFrame
    y: np.ndarray
    x_test: pd.DataFrame
    y_test: np.ndarray
    story: str


class Draft(NamedTuple):
    """All rows; the first `n` are learned from."""

    x: pd.DataFrame
    y: np.ndarray
    n: int

    @property
    def numbers(self) -> list[str]:
        """Names of the columns that are numbers still."""
        return [str(name) for name in self.x.columns if self.x[name].dtype.kind == "f"]


def tables(seed_from: int, seed_to: int) -> Iterator[Table]:
    """Tables of these seeds: numbers are to be predicted where a seed is even, classes where it is odd."""
    for seed in range(seed_from, seed_to):
        rng, classes = np.random.default_rng([17, seed]), bool(seed % 2)
        name = str(rng.choice(_sources(classes)))
        draft, told = _drawn(rng, *_rows(name, classes)), [name]
        for spoil in (*COLUMNS, *(CLASSES if classes else NUMBERS)):
            if rng.random() < (_OFTEN if spoil in COLUMNS else _SELDOM):
                draft, what = spoil(rng, draft)
                told += [what] if what else []
        x, y, n = draft
        told[0] += f" ({n} rows, {x.shape[1]} columns)"
        yield Table(seed, classes, x[:n], y[:n], x[n:].reset_index(drop=True), y[n:], "; ".join(told))


@cache
def _sources(classes: bool) -> tuple[str, ...]:
    """Sets with rows enough."""
    names = data.uci_names() if classes else data.gal_names()
    return tuple(name for name in names if len(_rows(name, classes)[1]) >= _ROWS[0] + _FEWEST_ASIDE)


@cache
def _rows(name: str, classes: bool) -> tuple[np.ndarray, np.ndarray]:
    split = data.uci(name)[0] if classes else data.gal(name, 0)
    return split.x, split.y


def _drawn(rng: np.random.Generator, x: np.ndarray, y: np.ndarray) -> Draft:
    """Some rows and some columns, in any order."""
    most = min(_ROWS[1], len(y) - _FEWEST_ASIDE)
    n = int(np.exp(rng.uniform(np.log(_ROWS[0]), np.log(most + 1))))
    rows = rng.permutation(len(y))[: n + _MOST_ASIDE]
    chosen = rng.permutation(x.shape[1])[: rng.integers(2, min(x.shape[1], _MOST_COLUMNS) + 1)]
    return Draft(pd.DataFrame(x[np.ix_(rows, chosen)], columns=[f"c{i}" for i in chosen]), y[rows], n)


def _some(rng: np.random.Generator, names: list[str], most: int = 3) -> list[str]:
    """A few columns."""
    return [str(name) for name in rng.permutation(names)[: rng.integers(1, most + 1)]]


def outliers(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    x, names, share = draft.x.copy(), _some(rng, draft.numbers, 5), rng.uniform(0.005, 0.03)
    for name in names:
        x[name] = np.where(rng.random(len(x)) < share, 100 * x[name], x[name])
    return draft._replace(x=x), f"{share:.1%} of cells times 100 in {', '.join(names)}"


def duplicates(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    """Rows to learn from that are there twice or more often; targets are those of the first."""
    x, y, n = draft
    share = rng.uniform(0.1, 0.6)
    kept = np.where(rng.random(n) < share, rng.integers(0, n, n), np.arange(n))
    order = np.concatenate([kept, np.arange(n, len(y))])
    return Draft(x.iloc[order].reset_index(drop=True), y[order], n), f"{share:.0%} of rows replaced by copies of others"


def nearly_constant(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    x, rare = draft.x.copy(), rng.uniform(0.003, 0.03)
    x["constant"] = float(rng.normal())
    x["almost"] = np.where(rng.random(len(x)) < rare, rng.normal(size=len(x)), 1.0)
    x["tiny"] = 1e6 + 1e-3 * rng.normal(size=len(x))
    return draft._replace(x=x), "a constant column, an almost constant one, and 1e6 with digits of noise"


def noise_columns(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    count = int(rng.integers(3, 21))
    noise = rng.standard_t(3, size=(len(draft.y), count))
    more = pd.DataFrame(noise, columns=[f"noise{i}" for i in range(count)])
    return draft._replace(x=pd.concat([draft.x, more], axis=1)), f"{count} columns of noise"


def few_levels(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    return _as_levels(rng, draft, 3, int(rng.integers(2, 9)))


def many_levels(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    return _as_levels(rng, draft, 1, int(rng.integers(30, 200)))


def useless_levels(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    """Such as names of people: most levels of new rows were never seen."""
    x = draft.x.copy()
    x["name"] = [f"name {i}" for i in rng.integers(0, 2 * len(x), len(x))]
    return draft._replace(x=x), "a column of names that say nothing"


def _as_levels(rng: np.random.Generator, draft: Draft, most: int, levels: int) -> tuple[Draft, str]:
    """Columns cut at quantiles, into levels in no order; one column stays a number."""
    x, kind = draft.x.copy(), rng.choice(["texts", "categories of pandas", "integers"])
    names = _some(rng, draft.numbers[1:], most)
    for name in names:
        place = np.minimum((levels * x[name].rank(pct=True)).astype(int), levels - 1)  # equal numbers stay together
        codes = rng.permutation(levels)[place]
        x[name] = [f"level {code}" for code in codes] if kind == "texts" else codes
        if kind == "categories of pandas":
            x[name] = x[name].astype("category")
    return draft._replace(x=x), f"{levels} levels, {kind}, in {', '.join(names)}" if names else ""


def missing(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    x, names, share = draft.x.copy(), _some(rng, list(draft.x.columns), 6), rng.uniform(0.03, 0.4)
    for name in names:
        x[name] = x[name].where(rng.random(len(x)) >= share)
    return draft._replace(x=x), f"{share:.0%} missing in {', '.join(names)}"


def missing_when_large(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    """So that it tells something that it is missing."""
    x, (name,) = draft.x.copy(), _some(rng, draft.numbers, 1)
    x[name] = x[name].where(x[name] <= x[name].quantile(rng.uniform(0.6, 0.9)))
    return draft._replace(x=x), f"missing in {name} where it is large"


def shuffled(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    return draft._replace(y=rng.permutation(draft.y)), "shuffled targets: nothing to learn"


def heavy_tails(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    noise = rng.standard_t(1.5, len(draft.y)) * rng.uniform(0.1, 0.5) * draft.y.std()
    return draft._replace(y=draft.y + noise), "targets with noise of heavy tails"


def exponential(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    return draft._replace(y=np.exp(2 * (draft.y - draft.y.mean()) / draft.y.std())), "exponentials of targets"


def wrong_targets(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    y, share = draft.y.copy(), rng.uniform(0.01, 0.03)
    wrong = np.flatnonzero(rng.random(draft.n) < share)
    y[wrong] = y.mean() + 100 * y.std() * rng.choice([-1, 1], len(wrong))
    return draft._replace(y=y), f"{len(wrong)} targets to learn from at 100 standard deviations"


def wrong_classes(rng: np.random.Generator, draft: Draft) -> tuple[Draft, str]:
    y, share = draft.y.copy(), rng.uniform(0.05, 0.3)
    wrong = np.flatnonzero(rng.random(draft.n) < share)
    y[wrong] = rng.choice(draft.y, len(wrong))
    return draft._replace(y=y), f"{share:.0%} of classes to learn from drawn by chance"


COLUMNS = (
    *(few_levels, many_levels, outliers, missing_when_large, noise_columns, nearly_constant),
    *(useless_levels, missing, duplicates),
)
NUMBERS = shuffled, heavy_tails, exponential, wrong_targets
CLASSES = shuffled, wrong_classes
