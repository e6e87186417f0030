"""Methods that ask what would be if a row had a label: look-ahead in the space of features, and BALD."""

import numpy as np
from jaxtyping import Float

from .._checks import Choice
from .._words import number
from ._look_ahead import LookAhead
from ._methods import AbstractMethod, Mask, Pool, Scores, cuts, entropy
from ._posterior import Posterior, Regression

_REFERENCE, _FEWEST, _PAIRS = 1000, 128, 10**8  # rows whose change counts, and with how many candidates
_SHORTLIST, _JUDGED = 500, 500  # candidates whose expected error is computed, on so many rows
_DRAWS = 32
_LEAST = 1e-4


class Gain(Choice):
    """What is expected of a label."""

    MLMOC = "mlmoc"
    EMOC = "emoc"
    EXPECTED_ERROR = "expected_error"


class Ahead(AbstractMethod):
    """How much the retrained model would change, or how much better it would be.

    A row that was picked is learned with its most probable label: the next one is chosen by the model after that, and
    nothing is retrained. The change is measured on a random part of the candidates where there are many.
    """

    def __init__(self, pool: Pool, gain: Gain):
        self.gain, self.labelled, self.classes = gain, pool.labelled, pool.classes
        self.learner = Regression(Posterior(pool.features, pool.labelled, pool.ridge), pool.y, pool.start)
        most = min(_REFERENCE, max(_FEWEST, _PAIRS // pool.size))
        self.reference = np.sort(pool.labelled + pool.rng.permutation(pool.size)[:most])
        self.spread = self.learner.spread
        if pool.classes is not None and pool.outputs is not None:  # as uncertain as the model says that it is
            self.spread = max(float(np.mean(pool.chances * (1 - pool.chances))), _LEAST)

    def scores(self, allowed: Mask) -> Scores:
        if self.classes is None:
            return self._numbers()
        gain, scores = self.gain, np.zeros(len(allowed))
        for cut in cuts(len(scores), len(self.reference)):
            ahead = self._ahead(np.arange(cut.start, cut.stop), self.reference)
            scores[cut] = ahead.mlmoc() if gain is Gain.MLMOC else ahead.emoc()
        return scores if gain is not Gain.EXPECTED_ERROR else self._better(np.where(allowed, scores, -1.0))

    def add(self, pick: int) -> None:
        self.learner.learn(self.labelled + pick, self._label(pick))

    def reason(self, pick: int, score: float) -> str:
        alone = self._ahead(np.array([pick]), self.reference) if self.classes is not None else None
        if alone is None or self.classes is None:
            what = "make other predictions surer" if self.gain is Gain.EXPECTED_ERROR else "change other predictions"
            return f"its label would {what}: it is predicted to within {number(self._uncertainty(pick))} only"
        likely = int(np.argmax(alone.probabilities()))
        if self.gain is Gain.EXPECTED_ERROR:
            now, then = alone.current_error, float(alone.expected_error()[0])
            return f"its label would bring the error that the model expects from {number(now)} to {number(then)}"
        flips = int(alone.label_flips()[0, likely])
        mean = float((alone.mlmoc() if self.gain is Gain.MLMOC else alone.emoc())[0]) / len(self.reference)
        if_so = f"as {self.classes[likely]}" if self.gain is Gain.MLMOC else "whatever it is"
        return (
            f"learning it {if_so} would move the predictions of other rows by {number(mean)} on average"
            + f", and change {flips} of {len(self.reference)} classes" * (self.gain is Gain.MLMOC)
        )

    def _label(self, pick: int) -> Float[np.ndarray, " k"]:
        now = self.learner.f[self.labelled + pick]
        return now if self.classes is None else np.eye(len(now))[np.argmax(now)]

    def _ahead(self, candidates: np.ndarray, reference: np.ndarray) -> LookAhead:
        features, f, rows = self.learner.posterior.features, self.learner.f, self.labelled + candidates
        covariance = np.asarray(features[reference] @ features[rows].T, np.float64)
        own = np.einsum("np,np->n", features[rows], features[rows], dtype=np.float64)
        labels, ridge = np.eye(f.shape[1]), self.learner.posterior.ridge
        return LookAhead(f[reference], f[rows], covariance, own, labels, ridge, self.spread)

    def _better(self, change: Scores) -> Scores:
        """How much lower the expected error would be, of those that would change most."""
        short = np.argsort(-change)[:_SHORTLIST]
        ahead = self._ahead(short, self.reference[:: max(1, len(self.reference) // _JUDGED)])
        gains = ahead.current_error - ahead.expected_error()
        scores = np.zeros(len(change))
        scores[short] = gains - gains.min() + 1e-300
        return scores

    def _numbers(self) -> Scores:
        """Of a Gaussian target: the expected change, or the variance that it takes off."""
        features, ridge = self.learner.posterior.features, self.learner.posterior.ridge
        scores = np.empty(len(features) - self.labelled)
        for cut in cuts(len(scores), len(self.reference)):
            rows = features[self.labelled :][cut]
            covariance = np.asarray(features[self.reference] @ rows.T, np.float64)
            total = np.einsum("np,np->n", rows, rows, dtype=np.float64) + ridge
            moved = np.abs(covariance).sum(0) / np.sqrt(total)
            scores[cut] = moved if self.gain is not Gain.EXPECTED_ERROR else np.sum(covariance**2, axis=0) / total
        return scores

    def _uncertainty(self, pick: int) -> float:
        """The standard deviation of a prediction."""
        features = self.learner.posterior.features[self.labelled + pick]
        return float(np.sqrt(self.learner.scale * float(features @ features)))


class Bald(AbstractMethod):
    """What the label would say about the model, in nats: uncertainty that is not noise."""

    def __init__(self, pool: Pool):
        self.pool = pool
        self.learner = Regression(Posterior(pool.features, pool.labelled, pool.ridge), pool.y, pool.start)
        self.noise = pool.rng.normal(size=(_DRAWS, pool.y.shape[1]))

    def scores(self, allowed: Mask) -> Scores:
        learner, m = self.learner, self.pool.labelled
        variance = learner.posterior.variance()[m:]
        if self.pool.classes is None:
            return 0.5 * np.log1p(variance / learner.posterior.ridge)
        scores = np.empty(len(variance))
        for cut in cuts(len(scores), self.noise.size):
            spread = np.sqrt(learner.scale * variance[cut])[:, None, None]
            drawn = np.maximum(learner.f[m:][cut, None] + spread * self.noise, 1e-6)
            chances = drawn / drawn.sum(-1, keepdims=True)
            scores[cut] = np.maximum(entropy(chances.mean(1)) - entropy(chances).mean(1), 0)
        return scores

    def add(self, pick: int) -> None:
        row = self.pool.labelled + pick
        now = self.learner.f[row]
        self.learner.learn(row, now if self.pool.classes is None else np.eye(len(now))[np.argmax(now)])

    def reason(self, pick: int, score: float) -> str:
        return f"its label would tell {number(score)} nats about the model"
