"""Tables and figures of the papers, made from the records of runs."""
