"""Reference cases in a vocabulary that belongs to no library, and the runner that compares them with this one."""

from ._reparametrized import Reparametrized as Reparametrized
from ._run import run_case as run_case
from ._run import run_golden as run_golden
from ._vocabulary import build_network as build_network
from ._vocabulary import words as words
