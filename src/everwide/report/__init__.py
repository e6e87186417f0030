"""What a network will make of a table: one page, with every number in a file beside it."""

from ._study import study as study
