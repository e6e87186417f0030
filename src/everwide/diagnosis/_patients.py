"""Whatever people train, admitted: its parameters by layer, its probe, and facts about the data in it."""

import hashlib
import math
import sys
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from .._checks import InputError
from .._losses import AbstractLoss
from .._trees import batch_size
from ..empirical import as_model
from ._groups import layer_name
from ._log import Record
from ._patient import Patient, Setting, is_nnx, nnx
from ._patient_torch import TorchPatient

_TABLES = ("emb", "wte", "wpe", "token", "vocab")  # what is looked up has no units
_ROOM = 100  # times the rows: different ones that the values of their columns could make, for copies to be odd
_KINKS = ("max", "abs", "sign", "min", "clamp", "reduce_window_max")
_SOFTPLUS = {"max", "abs", "log1p"}  # in its program, whose derivative is written apart
_LONG = 32  # times its width: a table, whatever it is called


@dataclass(frozen=True)
class Chart:
    """The leaves of the parameters: places, shapes, layers, and the axis of their units (`None`: a bias or a scale)."""

    places: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    layers: tuple[str, ...]
    units: tuple[int | None, ...]

    @property
    def groups(self) -> dict[str, list[int]]:
        """Leaves of each layer."""
        groups: dict[str, list[int]] = {}
        for leaf, name in enumerate(self.layers):
            groups.setdefault(name, []).append(leaf)
        return groups

    @property
    def sizes(self) -> np.ndarray:
        """Numbers in each leaf."""
        return np.array([math.prod(shape) for shape in self.shapes], float)

    def readout(self, outputs: int) -> int | None:
        """The leaf that is most likely the last layer: the last matrix with that many units."""
        fits = (len(s) == 2 and u is not None and s[u] == outputs for s, u in zip(self.shapes, self.units, strict=True))
        return max((leaf for leaf, fit in enumerate(fits) if fit), default=None)

    @property
    def mark(self) -> str:
        """What tells one architecture from another."""
        return hashlib.sha256(repr((self.places, self.shapes)).encode()).hexdigest()[:16]

    def gain(self, leaf: int, square: float) -> float | None:
        """The root mean square of a weight times the root of its inputs: 1.41 is critical for rectifiers."""
        axis = self.units[leaf]
        return None if axis is None else math.sqrt(square / self.shapes[leaf][axis])


def chart_of(params: Any, *, rows_are_units: bool) -> Chart:
    """The leaves of a tree."""
    paths = [path for path, _ in jax.tree.leaves_with_path(params)]
    shapes = [tuple(np.shape(leaf)) for leaf in jax.tree.leaves(params)]
    places = [jax.tree_util.keystr(path, simple=True, separator=".") for path in paths]
    layers = [layer_name(path) for path in paths]
    biases = {name: max(shape) for name, shape in zip(layers, shapes, strict=True) if _is_vector(shape)}
    units = [
        _axis(shape, place, rows_are_units, biases.get(layer))
        for shape, place, layer in zip(shapes, places, layers, strict=True)
    ]
    return Chart(tuple(places), tuple(shapes), tuple(layers), tuple(units))


def chart_of_torch(shapes: dict[str, tuple[int, ...]]) -> Chart:
    """The parameters of a PyTorch module: units are rows."""
    layers = [name.rpartition(".")[0] or name for name in shapes]
    units = [_axis(shape, name, True, None) for name, shape in shapes.items()]
    return Chart(tuple(shapes), tuple(shapes.values()), tuple(layers), tuple(units))


def _is_vector(shape: tuple[int, ...]) -> bool:
    return len(shape) > 0 and math.prod(shape) == max(shape)


def _axis(shape: tuple[int, ...], place: str, rows_are_units: bool, bias: int | None) -> int | None:
    """Which axis of a weight counts its units: that of its bias, where there is one and it says."""
    if len(shape) < 2 or _is_vector(shape) or any(word in place.lower() for word in _TABLES):
        return None
    if len(shape) == 2 and shape[0] > _LONG * shape[1]:
        return None  # a table of words
    if bias is not None and (shape[0] == bias) != (shape[-1] == bias):
        return 0 if shape[0] == bias else len(shape) - 1
    return 0 if rows_are_units else len(shape) - 1


def admit(
    model: Any, given: Any, loss: AbstractLoss, probe: tuple[Any, Any]
) -> tuple[Patient | TorchPatient, Chart, Record]:
    """A patient, its chart, and the facts of the run; `given` is what the first step hands over."""
    for leaf in map(_on_host, jax.tree.leaves(probe[0])):
        if leaf.dtype.kind in "OUS":
            raise InputError(f"probe: x holds {leaf.dtype}, expected numbers. Encode text and categories first.")
        if not leaf.size:
            raise InputError("probe: x is empty, expected 64 to 256 rows of the training set.")
    return _admit_torch(given, loss, probe) if is_torch(given) else _admit_jax(model, given, loss, probe)


def _admit_torch(module: Any, loss: AbstractLoss, probe: tuple[Any, Any]) -> tuple[TorchPatient, Chart, Record]:
    x, y = (jax.tree.map(_on_host, given) for given in probe)
    named = dict(module.named_parameters())
    if not any(p.requires_grad for p in named.values()):
        raise InputError(
            f"Of the {len(named)} parameters of {type(module).__name__} none requires a gradient, expected one at "
            "least: nothing is trained. Use requires_grad_(True) on the layers that are."
        )
    chart = chart_of_torch({name: tuple(p.shape) for name, p in named.items()})
    for name, p in named.items():
        if str(p.dtype) not in ("torch.float32", "torch.float64"):
            raise InputError(f"The parameter {name} is {p.dtype}, expected float32 or float64. Use module.float().")
    outputs = TorchPatient.count(module, x)
    targets, _ = loss.targets(y, outputs)
    _same_rows(len(targets), batch_size(x))
    labels = labels_of(targets, outputs)
    patient = TorchPatient(module, loss, (x, targets), chart.units, labels is not None)
    facts = facts_of(chart, loss, x, targets, labels, outputs)
    facts["smooth"] = TorchPatient.is_smooth(module, x)
    facts["evaluation"] = sorted({type(m).__name__ for m in module.modules() if _is_changeable(m) and m.training})
    return patient, chart, facts


def _is_changeable(layer: Any) -> bool:
    return any(word in type(layer).__name__ for word in ("Dropout", "BatchNorm"))


def _on_host(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def _same_rows(targets: int, rows: int) -> None:
    if targets != rows:
        raise InputError(f"probe: y has {targets} rows and x {rows}: they must agree.")


def _admit_jax(model: Any, given: Any, loss: AbstractLoss, probe: tuple[Any, Any]) -> tuple[Patient, Chart, Record]:
    module = is_nnx(given) or (isinstance(given, eqx.Module) and callable(given))
    opened: Any = as_model(_quiet(given)) if module else as_model(model, given)
    x, y = probe
    dtype = jnp.result_type(*jax.tree.leaves(opened.params))
    x = jax.tree.map(lambda a: _cast(a, dtype), x)
    n, one = batch_size(x), jax.tree.map(lambda a: a[0], x)
    out = jax.eval_shape(opened.f, opened.params, one)
    if not (isinstance(out, jax.ShapeDtypeStruct) and jnp.issubdtype(out.dtype, jnp.floating)):
        raise InputError(f"For one row of the probe the model returned {out}, expected one array of floats.")
    outputs = math.prod(out.shape)
    targets, _ = loss.targets(y, outputs)
    _same_rows(len(targets), n)
    chart = chart_of(opened.params, rows_are_units=module and not is_nnx(given))
    labels = labels_of(targets, outputs)
    structure = jax.tree.structure(opened.params)
    setting = Setting(opened.f, loss, structure, chart.units, labels is not None)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=outputs) / math.sqrt(outputs), dtype)
    facts = facts_of(chart, loss, x, targets, labels, outputs)
    facts["smooth"] = _is_smooth(opened, one)
    facts["evaluation"] = ["Dropout"] if module and "Dropout" in repr(given) else []
    return Patient(setting, x, _cast(targets, dtype), weights), chart, facts


def facts_of(chart: Chart, loss: Any, x: Any, targets: np.ndarray, labels: Any, outputs: int) -> Record:
    """What is known before anything is measured."""
    sizes = chart.sizes
    return {
        "model": chart.mark,
        "groups": {name: int(sum(sizes[leaf] for leaf in leaves)) for name, leaves in chart.groups.items()},
        "loss": type(loss).__name__,
        "rows": len(targets),
        "outputs": outputs,
        "classes": None if labels is None else np.bincount(labels, minlength=outputs).tolist(),
        "targets": None if labels is not None else _numbers(np.asarray(targets, float)),
        "inputs": _inputs(x),
    }


def labels_of(targets: np.ndarray, outputs: int) -> np.ndarray | None:
    """Classes, where the targets are such: a function as a loss may read whole numbers as counts, or -100 as none."""
    if targets.ndim == 1 and np.issubdtype(targets.dtype, np.integer) and outputs > 1:
        return targets if ((targets >= 0) & (targets < outputs)).all() else None
    if targets.ndim == 2 and outputs > 1 and np.isin(targets, (0, 1)).all() and (targets.sum(1) == 1).all():
        return targets.argmax(1)
    return None


def _inputs(x: Any) -> Record | None:
    """Scale, spread and repetition of the inputs, where they are numbers."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(x)]
    columns = [leaf.reshape(len(leaf), -1) for leaf in leaves if np.issubdtype(leaf.dtype, np.floating)]
    if not columns:
        return None
    table = np.concatenate(columns, 1).astype(np.float64)
    finite = np.isfinite(table).all(1)
    rows = table[finite]
    if not len(rows):
        return {"finite": 0.0}
    most = np.abs(rows).max() or 1.0
    spread = (rows / most).std(0) * most
    moving = spread[spread > 1e-6 * most]
    return _numbers(rows) | {
        "finite": float(finite.mean()),
        "constant": 1 - len(moving) / len(spread),
        "smallest_std": float(moving.min()) if len(moving) else 0.0,
        "largest_std": float(moving.max()) if len(moving) else 0.0,
        "repeated": _repeated(rows),
    }


def _repeated(rows: np.ndarray) -> float:
    """The share of rows that are copies; none where columns have so few values that there must be some."""
    copies = 1 - len(np.unique(rows, axis=0)) / len(rows)
    possible = sum(math.log(len(np.unique(column))) for column in rows.T) if copies else 0.0
    return copies if possible > math.log(_ROOM * len(rows)) else 0.0


def _numbers(values: np.ndarray) -> Record:
    most = np.abs(values).max()
    some = values / (most or 1.0)  # their squares are finite, whatever people pass
    mean, std, rms = (most * figure for figure in (some.mean(), some.std(), np.sqrt(np.mean(some**2))))
    return {"mean": mean, "std": std, "rms": rms, "most": most}


def _cast(value: Any, dtype: Any) -> Any:
    array = jnp.asarray(value)
    return array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array


def is_torch(value: Any) -> bool:
    """Whether it is a PyTorch module; PyTorch need not be installed."""
    loaded = sys.modules.get("torch.nn")
    return loaded is not None and isinstance(value, loaded.Module)


def _is_smooth(model: Any, one: Any) -> bool:
    """Whether a function has a second derivative everywhere, as far as its program shows."""
    return not _has_kinks(jax.make_jaxpr(model.f)(model.params, one).jaxpr)


def _has_kinks(program: Jaxpr) -> bool:
    for eqn in program.eqns:
        kind, held = eqn.primitive.name, jax.tree.leaves(list(eqn.params.values()))
        inner = [one.jaxpr if isinstance(one, ClosedJaxpr) else one for one in held]
        inner = [one for one in inner if isinstance(one, Jaxpr)]
        if kind == "custom_jvp_call" and {other.primitive.name for one in inner for other in one.eqns} >= _SOFTPLUS:
            continue
        if kind == "max" and any(isinstance(v, Literal) and v.val == -np.inf for v in eqn.invars):
            continue  # what softmax subtracts
        if kind in _KINKS or "relu" in str(eqn.params.get("name")) or any(map(_has_kinks, inner)):
            return True
    return False


def _quiet(module: Any) -> Any:
    """A module as it predicts: nothing dropped."""
    if is_nnx(module):
        copy = nnx().clone(module)
        batch = [layer for _, layer in nnx().iter_graph(copy) if isinstance(layer, nnx().BatchNorm)]
        if batch:
            raise InputError(
                "The module has a flax.nnx.BatchNorm, whose statistics move during training and are no parameters: the "
                "doctor would look at old ones. Use LayerNorm or GroupNorm, or watch a function with "
                "the statistics bound: Doctor(f, ...) and doctor(params, opt_state)."
            )
        copy.eval()
        return copy
    return eqx.nn.inference_mode(module)
