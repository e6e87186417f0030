"""Networks in Python files of the user, which are executed, as Python executes a script."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from ..layers import AbstractLayer
from ._faults import fail


def usage(message: str) -> typer.BadParameter:
    """A network that is not named as it should be."""
    return typer.BadParameter(message, param_hint="'FILE.py:NAME'")


def load_network(target: str) -> AbstractLayer:
    """The network of that name in that file, which is run for it."""
    file, colon, name = target.rpartition(":")
    if not (file and colon and name.isidentifier()):
        raise usage(f"{target!r} does not name a network: expected a file and a name in it, such as model.py:net.")
    path = Path(file)
    if not path.is_file():
        raise usage(f"there is no file {file!r} (seen from {str(Path.cwd())!r}).")
    module = _run_file(path)
    known = sorted(n for n, value in vars(module).items() if isinstance(value, AbstractLayer))
    hint = f"Networks in it: {', '.join(known)}." if known else "No network is assigned in it."
    missing = object()
    value: Any = getattr(module, name, missing)
    if value is missing:
        raise usage(f"{file} does not define {name!r}. {hint}")
    if not isinstance(value, AbstractLayer):
        kind = "the class" if isinstance(value, type) else f"a {type(value).__name__}"
        raise usage(
            f"{name!r} in {file} is {kind}, not a network (an instance of everwide.layers.AbstractLayer). {hint}"
        )
    return value


def _run_file(path: Path) -> ModuleType:
    """Import a file as Python runs a script: its neighbours can be imported, its errors are its own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise usage(f"{path} is not a Python file: expected a name that ends in .py.")
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
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == path.resolve():
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f":{line}"
