"""What is wrong with a run or a configuration: memory, blurred attention, positions, leaks of what follows, dimensions."""
