"""What a network will make of a table: one page, with every number in a file beside it."""

from ._page import render as render
from ._page import write_report as write_report
from ._study import study as study
