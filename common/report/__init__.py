"""A report joins published numbers, results of runs and claims. It needs neither torch nor a network."""
