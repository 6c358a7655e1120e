"""Where sentence pairs come from: one small module a source, all of them `data.sources.base.Source`."""
