"""The command line. What only one command needs is imported inside it."""

from ._app import app as app
