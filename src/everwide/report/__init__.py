"""What a network will make of a table: one page, with every number in a file beside it."""

from ._page import render as render
from ._study._run import Study as Study
from ._study._run import study as study
from ._study._section import Fact as Fact
from ._study._section import Section as Section
from ._write import write_report as write_report
