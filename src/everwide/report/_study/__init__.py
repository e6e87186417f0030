"""The parts of a report: one function for each question, from a table that was made ready to plain numbers."""
