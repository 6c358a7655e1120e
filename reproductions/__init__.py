"""One package per paper, and the commands that train, measure and report."""
