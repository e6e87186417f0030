"""The laboratory of everwide: experiments of papers, run again, and reference cases. It uses public names only."""
