"""The Jacobian of a few examples, leaf by leaf: how it is kept, and how two of them become a tile of the kernel."""

from ._contract import AbstractTangents as AbstractTangents
from ._contract import Factor as Factor
from ._contract import Lookup as Lookup
from ._contract import Outer as Outer
from ._contract import Part as Part
from ._contract import Plain as Plain
from ._forms import Job as Job
from ._forms import Outputs as Outputs
from ._forms import Ready as Ready
from ._forms import Recipe as Recipe
from ._forms import as_outputs as as_outputs
from ._forms import decide as decide
from ._forms import inside as inside
from ._forms import multiplied_out as multiplied_out
from ._forms import own_tile as own_tile
from ._forms import ready as ready
from ._forms import strips as strips
from ._forms import tile as tile
from ._forms import two_reals as two_reals
