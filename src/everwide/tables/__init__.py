"""Files and frames of data as numbers for a network, with a note on everything that was done to them. Needs pandas.

No file is executed: pickles are refused, formulas are text.
"""

try:
    import pandas as pandas
except ModuleNotFoundError as error:
    message = "everwide.tables reads columns with pandas, which is not installed: pip install 'everwide[cli]'"
    raise ModuleNotFoundError(message, name=error.name) from error

from ._encoder import encode_frame as encode_frame
from ._pool import read_pool as read_pool
from ._read import read_inputs as read_inputs
from ._read import read_table as read_table
from ._table import Table as Table
from ._table import TableError as TableError
from ._table import TableWarning as TableWarning
