"""Which rows to label next, and why: look-ahead and the strong others, on any kernel."""

from ._look_ahead import look_ahead as look_ahead
from ._query import query as query
