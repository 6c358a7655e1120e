"""make bench-peers: other projects beside ours, in an environment of their own."""
