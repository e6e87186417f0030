"""Data that are always there."""

import numpy as np

from ._table import Table


def digits_table() -> Table:
    """The handwritten digits of scikit-learn: 1797 images of 8 by 8 pixels, as flat rows.

    >>> from everwide.tables import digits_table
    >>> digits_table().classes[:3]
    ('0', '1', '2')
    """
    from sklearn.datasets import load_digits

    x, y = (np.asarray(part) for part in load_digits(return_X_y=True))
    names = tuple(f"pixel {row},{column}" for row in range(8) for column in range(8))
    return Table(
        x=x.astype(np.float64),
        y=y.astype(np.int64),
        names=names,
        target="digit",
        classes=tuple(str(digit) for digit in range(10)),
        source="digits of scikit-learn",
        sites=(8, 8, 1),
    )
