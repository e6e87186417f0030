"""The sections of a page about a training run: a file each, shown where the log has their records."""
