"""Small tables for tests of the report, and names that would do harm if a page took them for HTML."""

import numpy as np

import everwide as ew
from everwide.tables import Table

SCRIPT = "<script>document.title='broken'</script>"
IMAGE = '"><img src=x onerror="document.title=\'broken\'">'
FORMULA = "=cmd|' /C calc'!A0 & <b>bold</b>"


def hostile_table(n: int = 90) -> Table:
    """Three classes in three columns, with two rows that repeat others; all names are hostile."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    x = rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[y]
    x[10], x[11] = x[13], x[16]
    classes = (SCRIPT, IMAGE, "plain")
    return Table(x, y, (SCRIPT, IMAGE, FORMULA), FORMULA, classes, f"{SCRIPT}.csv", (f"A column {IMAGE} was filled.",))


def number_table(n: int = 90) -> Table:
    """A smooth function of two columns, with noise."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 2))
    y = 100 + 10 * np.sin(x[:, 0]) + 5 * x[:, 1] + rng.normal(size=n)
    return Table(x, y, ("first", "second"), "target", None, "numbers.csv")


def small_net() -> ew.layers.AbstractLayer:
    return ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(1, w_std=2**0.5))
