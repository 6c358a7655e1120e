"""Where data comes from: one small module a source, for pairs `data.sources.base.Source`, else `data.sources.long`."""
