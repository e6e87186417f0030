"""The run-time type checker of the suite: like pyright, it takes an `int` for a `float`."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
