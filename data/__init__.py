"""Data sets: fetched, cleaned and split once, stored as Arrow files in a cache folder, read as batches of ids.

`data.translation.TranslationData` is the entry point for pairs of sentences, `data.language_modeling.ByteData` for long texts,
`data.documents.DocumentData` for labelled documents; `data.sources` says where they come from.
"""
