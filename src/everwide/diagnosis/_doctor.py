"""A watcher of training runs that costs almost nothing: called once a step, it measures when it can afford to."""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .._checks import InputError, positive, share, whole
from .._losses import Loss, as_loss
from ._events import Watch
from ._log import Journal, Record
from ._optimizers import Optimizer
from ._patient import Patient, Pulse
from ._patient_torch import TorchPatient
from ._patients import Chart, admit, is_torch
from ._records import Findings, event
from ._verdict import Run, Verdict
from ._writers import deliver

_FEWEST = 500  # sittings, before they are as far apart as steps over this: a log grows as the logarithm of the steps
_SHARES = {"curve": 0.4, "kernel": 0.15, "readout": 0.1}  # of what is spent, at most; the rest is at every look
_AHEAD = 1.0  # seconds whose budget may be spent before they have passed: most goes wrong in the beginning
_APART = 300.0  # steps from the first of them to the last
_UNKNOWN = 4  # times a pulse: what a part may cost that was not seen yet
_COMPILED: set[Any] = set()  # what has run once in this process


def _now() -> tuple[float, float]:
    """Of the clock, and of this process."""
    return time.perf_counter(), time.process_time()


def _since(begin: tuple[float, float], on_host: bool) -> float:
    """Seconds; not those in which other programs had the processor, where nothing else computes."""
    clock, own = (after - before for before, after in zip(begin, _now(), strict=True))
    return min(clock, own) if on_host else clock


class Cost:
    """Seconds that a doctor has spent, and the seconds of the run around it."""

    def __init__(self):
        self.spent = self.compiling = self.before = 0.0
        self.start: float | None = None

    @property
    def seconds(self) -> float:
        """Of the run, since the first call, without compiling."""
        return self.before + (0.0 if self.start is None else time.perf_counter() - self.start - self.compiling)

    @property
    def share(self) -> float:
        """Of the time of the run that went into measuring."""
        return self.spent / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        return (
            f"{self.spent:.3g} s of {self.seconds:.3g} s ({100 * self.share:.2g} %), "
            f"and {self.compiling:.3g} s for compiling"
        )


class Doctor:
    """A watcher of one training run: called once a step, it measures when it can afford to, and says what is wrong.

    In most steps a call only counts. Where the time that measuring has taken leaves room in the budget, it looks at the
    probe: losses and gradients by layer, what the optimizer did in one step, curvature against the edge of stability of
    that optimizer (warm-started, two products with the Hessian), noise between parts of the probe, and now and then
    the tangent kernel. Every look is a line of the log. Programs are compiled once for an architecture; the seconds
    for that are counted apart.

    Args:
        model: what is trained: a function `f(params, x)` of one example, an everwide network, or an Equinox, Flax NNX
            or PyTorch module. Dropout is off and running statistics are as they are where it is measured.
        loss: a loss of `everwide.training`, or a JAX function of the outputs and the target of one row.
        probe: examples and targets `(x, y)`, 64 to 256 rows of the training set, always the same.
        budget: share of the run's own time that measuring may take. That of the first second may be spent at once.
        log: a file to which records are appended, or `None`. A log of the same model is continued.
        batch_size: rows in a batch of the training, for noise to be compared with.
        rate: the learning rate, where it is constant; else it is read from the optimizer's state, or measured.
        also: a writer of TensorBoard or Weights & Biases, as for `send`, which gets what is measured at once.

    `doctor(params, state)` is called after each step, with parameters or module and the state of the optax optimizer
    (PyTorch: the optimizer); `value=` is the loss of the step, which may still be on its way from a device. `cost` has
    what was spent; `run` what was recorded; `verdict()` what is wrong; `callback()` is for Lightning.

    >>> import jax, jax.numpy as jnp, optax
    >>> from everwide.diagnosis import Doctor
    >>> from everwide.training import Mse
    >>> f = lambda w, x: w @ x
    >>> x, y = jax.random.normal(jax.random.key(0), (64, 3)), jnp.ones(64)
    >>> doctor = Doctor(f, Mse(), probe=(x, y), batch_size=64)
    >>> slope = jax.grad(lambda w: jnp.mean(jax.vmap(lambda a: (f(w, a) - 1) ** 2 / 2)(x)))
    >>> params, optimizer = jnp.zeros(3), optax.sgd(10.0)  # far too large
    >>> state = optimizer.init(params)
    >>> for _ in range(4):
    ...     change, state = optimizer.update(slope(params), state)
    ...     params = optax.apply_updates(params, change)
    ...     doctor(params, state)
    >>> doctor.verdict().causes[0].name
    'rate too large'
    """

    def __init__(
        self,
        model: Any,
        loss: Loss,
        *,
        probe: Any,
        budget: float = 0.02,
        log: str | Path | None = None,
        batch_size: int | None = None,
        rate: float | None = None,
        also: Any = None,
    ):
        if not (isinstance(probe, tuple | list) and len(probe) == 2):
            raise InputError(f"probe is a {type(probe).__name__}, expected a pair (x, y) of examples and targets.")
        self._model, self._loss, self._probe = model, as_loss(loss), (probe[0], probe[1])
        self._budget = share(positive(budget, "budget"), "budget")
        self._batch_size = None if batch_size is None else whole(batch_size, "batch_size")
        self._rate = None if rate is None else positive(rate, "rate")
        self._also = also
        self._deliver([])
        self.cost = Cost()
        self._journal, self._watch = Journal(log), Watch()
        self._step, self._next = -1, 0
        self._patient: Patient | TorchPatient | None = None
        self._chart: Chart | None = None
        self._kinds: list[str] = []  # of numbers, of each leaf
        self._findings: Findings | None = None
        self._pulse: Pulse | None = None
        self._took: dict[str, float] = {}
        self._paid: dict[str, float] = {}  # seconds

    def __call__(self, params: Any, state: Any = None, *, value: Any = None) -> None:
        """Once a step, after the update; `value` is the loss of the step."""
        self._step += 1
        if value is not None:
            self._watch.waiting.append(value)
        if self._step >= self._next:
            self._visit(params, state)

    @property
    def run(self) -> Run:
        """What was recorded so far."""
        lines = self._journal.lines
        if lines is None:
            raise InputError("Nothing was recorded yet: call the doctor once a step, doctor(params, opt_state).")
        told, events = self._watch.look(self._step)
        if told is not None or events:
            self._deliver(self._journal.write([{"record": "told", "step": self._step, "told": told}, *events]))
        return Run(lines.facts, tuple(lines.records))

    def verdict(self) -> Verdict:
        """What is wrong, the likeliest cause first: the same as from the log alone."""
        return self.run.verdict()

    def callback(self) -> Any:
        """For a Lightning trainer: calls the doctor after each batch, with the module, its optimizer and the loss."""
        names = ("lightning.pytorch", "pytorch_lightning")
        bases = tuple(sys.modules[name].Callback for name in names if name in sys.modules)[:1]

        def on_train_batch_end(_: Any, trainer: Any, module: Any, outputs: Any, *rest: Any) -> None:
            watched = self._model if is_torch(self._model) else module
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            self(watched, trainer.optimizers[0], value=loss)

        return type("DoctorCallback", bases, {"on_train_batch_end": on_train_batch_end})()

    def _visit(self, params: Any, state: Any) -> None:
        """Look if there is time; a second look, a step later, sees what the optimizer did."""
        if self.cost.start is None:
            self.cost.start = time.perf_counter()
        if self._pulse is not None:
            self._examine(params, state)
        elif self._affordable():
            self._listen(params, state)

    def _affordable(self) -> bool:
        """Whether a sitting fits into the budget now; else `_next` is set to when it may."""
        price, seconds = sum(t for name, t in self._took.items() if self._is_due(name)), self.cost.seconds
        wanted = (self.cost.spent + price) / self._budget
        if not self._took or wanted <= max(seconds, _AHEAD):
            return True
        missing = wanted - seconds
        steps = missing * self._step / seconds if seconds > 0 else 1.0
        self._next = self._step + min(max(1, math.ceil(steps)), max(1, self._step))
        return False

    def _is_due(self, name: str) -> bool:
        """Whether a part of an examination fits into its share; curvature always has a first time."""
        if name not in _SHARES or (name == "curve" and not self._paid.get(name)):
            return True
        price = self._took.get(name, _UNKNOWN * self._took.get("pulse", 0.0))
        return self._paid.get(name, 0.0) + price <= _SHARES[name] * self.cost.spent

    def _listen(self, params: Any, state: Any) -> None:
        leaves = self._leaves(params, state)
        patient = self._patient
        assert patient is not None
        self._pulse = self._timed("pulse", lambda: patient.pulse(leaves))
        self._next = self._step + 1

    def _examine(self, params: Any, state: Any) -> None:
        leaves, patient, signs = self._leaves(params, state), self._patient, self._pulse
        assert patient is not None and self._findings is not None and signs is not None
        optimizer = self._optimizer(params, state)
        at = self._step - 1
        form = (optimizer.first is None, optimizer.second is None)
        finite = bool(np.isfinite(signs.losses).all())
        step = self._timed("step", lambda: patient.step(leaves, optimizer), form)
        optimizer = optimizer.settled(step.leaves)
        curve = None
        if finite and self._is_due("curve"):
            curve = self._timed("curve", lambda: patient.curve(optimizer), form)
        kernel = None
        if finite and self._is_due("kernel"):
            kernel = self._timed("kernel", lambda: patient.kernel(leaves))
        last = None
        if finite and (leaf := self._findings.readout(signs)) is not None and self._is_due("readout"):
            last = self._timed("readout", lambda: patient.readout(leaves, leaf))
        begin = _now()
        told, events = self._watch.look(self._step)
        clock = {"seconds": self.cost.seconds, "cost": self.cost.spent, "compiling": self.cost.compiling}
        records = self._findings.records(at, clock, signs, step, curve, kernel, last, optimizer, told)
        self._deliver(self._journal.write(records + events))
        self._pulse = None
        self._bill("writing", _since(begin, patient.on_host))
        self._next = max(self._step + 1 + self._step // _FEWEST, self._spaced())

    def _spaced(self) -> int:
        """The step before which there is no other look, so that they do not come in a row where time was saved."""
        seconds = self.cost.seconds
        paid_by = sum(self._took.values()) / self._budget  # seconds
        pays = paid_by * self._step / seconds if seconds > 0 else 0.0  # steps
        if seconds < _AHEAD:  # as many looks as it pays for, further and further apart
            return int(min(min(_APART ** (paid_by / _AHEAD), 10.0) * self._step, self._step + pays))
        return self._step + int(pays / 2)

    def _leaves(self, params: Any, state: Any) -> list[Any]:
        """The parameters, computed; the first time, the model is admitted."""
        if self._patient is None:
            begin = time.perf_counter()
            self._admit(params, state)
            self.cost.compiling += time.perf_counter() - begin
        assert self._patient is not None and self._chart is not None
        leaves = self._patient.leaves(params)
        if tuple(tuple(leaf.shape) for leaf in leaves) != self._chart.shapes:
            raise InputError(
                f"The parameters have {len(leaves)} arrays of other shapes than at the first step, where they were "
                f"{len(self._chart.shapes)}. A doctor watches one model: make another Doctor, with another log."
            )
        kinds = [str(leaf.dtype) for leaf in leaves]
        self._kinds = self._kinds or kinds
        if kinds != self._kinds:
            name, was, now = next(p for p in zip(self._chart.places, self._kinds, kinds, strict=True) if p[1] != p[2])
            raise InputError(
                f"The parameter {name or 'of the model'} is {now}, expected {was}, as at the first step. Keep its "
                "type, or make another Doctor, with another log."
            )
        self._patient.ready(leaves)
        return leaves

    def _admit(self, params: Any, state: Any) -> None:
        self._patient, self._chart, facts = admit(self._model, params, self._loss, self._probe)
        optimizer = self._optimizer(params, state)
        facts |= {"batch_size": self._batch_size, "budget": self._budget, "optimizer": optimizer.kind}
        earlier = self._journal.begin(facts)
        self._findings = Findings(self._chart, facts, self._rate, self._patient.targets())
        if earlier:
            self._resume(earlier)

    def _resume(self, earlier: list[Record]) -> None:
        """Go on where a log ends."""
        self._step += earlier[-1]["step"] + 1
        last = next((r for r in reversed(earlier) if r["record"] == "vitals"), None)
        if last is not None:
            self.cost.before, self.cost.spent = last["seconds"], last["cost"]
        self._deliver(self._journal.write([event(self._step, "resumed", {})]))

    def _deliver(self, records: list[Record]) -> None:
        """To the writer, if there is one, with what the training loop logs next."""
        if self._also is not None:
            deliver(records, self._also, commit=False)

    def _optimizer(self, params: Any, state: Any) -> Optimizer:
        assert self._patient is not None
        optimizer = self._patient.optimizer(state, params)
        return optimizer if self._rate is None else optimizer._replace(rate=self._rate)

    def _timed(self, name: str, work: Callable[[], Any], form: Any = None) -> Any:
        """The result, with its seconds on the bill; those of a program's first run are for compiling."""
        assert self._patient is not None and self._chart is not None
        begin = _now()
        result = work()
        key = (name, form, self._patient.mark, self._chart.shapes)
        if key in _COMPILED:
            self._bill(name, _since(begin, self._patient.on_host))
        else:
            _COMPILED.add(key)
            self.cost.compiling += time.perf_counter() - begin[0]
        return result

    def _bill(self, name: str, took: float) -> None:
        """What was spent; how much it will be the next time, where one delay is no habit."""
        self.cost.spent += took
        self._paid[name] = self._paid.get(name, 0.0) + took
        self._took[name] = min(took, 2 * self._took.get(name, took))
