"""Networks by name: presets, activations, and networks in files of the user, which are run as Python runs a script."""

import difflib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

import typer

from .. import activations
from .._presets import PRESETS, preset
from ..activations import AbstractActivation
from ..layers import AbstractLayer
from ._show import fail, misuse

# Those that need no arguments; a test compares them with `everwide.activations`.
# fmt: off
ACTIVATIONS = (
    "Abs", "Cos", "Elu", "Erf", "Exp", "ExpNormalized", "Gabor", "Gaussian", "Gelu", "HardTanh", "LeakyRelu", "Mish",
    "Rbf", "Relu", "Relu6", "Selu", "Sigmoid", "SigmoidLike", "Sign", "Silu", "Sin", "Softplus", "Step", "Tanh",
)
# fmt: on


def named_network(target: str, *words: str) -> AbstractLayer | str:
    """A network in a file; or a preset, or another of these words, by its name."""
    known = (*PRESETS, *words)
    if target in known:
        return target
    if ":" not in target and not target.endswith(".py"):
        near = difflib.get_close_matches(target, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise _usage(
            f"{target!r}: expected {', '.join(known)}, or a file and a name in it, such as model.py:net.{hint}"
        )
    return load_network(target)


def built(net: AbstractLayer | str, input_shape: tuple[int, ...]) -> AbstractLayer:
    """The network itself; a preset is made for examples of that shape."""
    return preset(net, input_shape) if isinstance(net, str) else net


def activation(name: str) -> AbstractActivation:
    """By its name, in whatever case."""
    known = {one.lower(): one for one in ACTIVATIONS}
    bare = name.lower().replace("-", "").replace("_", "").removesuffix("()")
    if bare not in known:
        near = difflib.get_close_matches(bare, list(known), n=1)
        hint = f"Did you mean {known[near[0]]}?" if near else f"Known: {', '.join(ACTIVATIONS)}."
        message = f"there is no activation {name!r}. {hint} Others are read from a file: model.py:activation."
        raise misuse(message, "ACTIVATION")
    return getattr(activations, known[bare])()


def complete_activations(incomplete: str) -> list[str]:
    """Activations that begin so, in lower case as people type them."""
    return [name.lower() for name in ACTIVATIONS if name.lower().startswith(incomplete.lower())]


def _usage(message: str) -> typer.BadParameter:
    """A network that is not named as it should be."""
    return misuse(message, "FILE.py:NAME")


def load_network(target: str) -> AbstractLayer:
    """The network of that name in that file, which is run for it."""
    file, colon, name = target.rpartition(":")
    if not (file and colon and name.isidentifier()):
        raise _usage(f"{target!r} does not name a network: expected a file and a name in it, such as model.py:net.")
    path = Path(file)
    if not path.is_file():
        raise _usage(f"there is no file {file!r} (seen from {str(Path.cwd())!r}).")
    module = _run_file(path)
    known = sorted(n for n, value in vars(module).items() if isinstance(value, AbstractLayer))
    hint = f"Networks in it: {', '.join(known)}." if known else "No network is assigned in it."
    if name not in vars(module):
        raise _usage(f"{file} does not define {name!r}. {hint}")
    value = vars(module)[name]
    if not isinstance(value, AbstractLayer):
        kind = "the class" if isinstance(value, type) else f"a {type(value).__name__}"
        raise _usage(
            f"{name!r} in {file} is {kind}, not a network (an instance of everwide.layers.AbstractLayer). {hint}"
        )
    return value


def _run_file(path: Path) -> ModuleType:
    """Import a file as Python runs a script: its neighbours can be imported, its errors are its own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise _usage(f"{path} is not a Python file: expected a name that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    shadowed = sys.modules.get(path.stem)
    sys.path.insert(0, folder)
    sys.modules[path.stem] = module  # dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        fail(f"{path} ended the program when it was imported (exit code {error.code}).")
    except Exception as error:
        fail(f"{path}{_line_in(path, error)} raised {type(error).__name__}: {error}")
    finally:
        sys.path.remove(folder)
        if shadowed is not None:
            sys.modules[path.stem] = shadowed
    return module


def _line_in(path: Path, error: BaseException) -> str:
    """`:LINE` of the file where the error passed through it."""
    lines = [error.lineno] if isinstance(error, SyntaxError) and error.lineno else []
    passed = traceback.extract_tb(error.__traceback__)
    lines += [frame.lineno for frame in passed if Path(frame.filename).resolve() == path.resolve()]
    return f":{lines[-1]}" if lines else ""
