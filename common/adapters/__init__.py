"""Our attention where other libraries' is expected, and their weights and shapes where ours are."""
