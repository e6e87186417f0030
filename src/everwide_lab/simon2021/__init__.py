"""Simon et al. 2021: kernel regression and finite networks beside what eigenvalues predict."""

from ._run import Simon2021 as Simon2021
from ._run import reproduce as reproduce
