"""What a network will make of a table, and how a training run went: a page, with every number in a file beside it."""

from ._run import study_run as study_run
from ._study import study as study
