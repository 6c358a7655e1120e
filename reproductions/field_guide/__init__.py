"""Claims that are made about attention in general, each with a check that can fail."""
