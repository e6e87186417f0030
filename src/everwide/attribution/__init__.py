"""Which rows a prediction comes from: what it would be without them, exactly or to first order."""

from ._influence import forgetting as forgetting
from ._influence import influence as influence
from ._leave_out import leave_out as leave_out
