"""Files of data as numbers for a network, with a note on everything that was done to them. Needs pandas.

No file is executed: pickles are refused, formulas are text.
"""

from ._digits import digits_table as digits_table
from ._read import read_inputs as read_inputs
from ._read import read_table as read_table
from ._table import Table as Table
from ._table import TableError as TableError
