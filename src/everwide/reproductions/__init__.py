"""Experiments of papers, run again. Needs the extras `train` and `plot`."""

from ._claims import Claim as Claim
from ._claims import Verdict as Verdict
from ._criticality import Criticality as Criticality
from ._criticality import criticality as criticality
from ._lee2019 import Lee2019 as Lee2019
from ._lee2019 import lee2019 as lee2019
from ._progress import Stage as Stage
from ._sernau2024 import Sernau2024 as Sernau2024
from ._sernau2024 import sernau2024 as sernau2024
from ._sernau2024_arms import Arm as Arm
from ._sernau2024_arms import Rates as Rates
from ._sernau2024_setting import Setting as Setting
from ._simon2021 import Simon2021 as Simon2021
from ._simon2021 import simon2021 as simon2021
