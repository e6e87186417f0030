"""How large learning rates may be, and how long training takes, before it begins."""

from ._noise import gradient_noise as gradient_noise
from ._stable import fit_times as fit_times
from ._stable import stable_rates as stable_rates
from ._tables import rate_table as rate_table
from ._tables import schedule_check as schedule_check
from ._trial import recommended_rate as recommended_rate
