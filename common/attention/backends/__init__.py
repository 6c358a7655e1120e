"""The backends of `common.attention.attention`: each is exact, or says in `unsupported` why it can't do a request."""
