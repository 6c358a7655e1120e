"""Data sets: fetched, cleaned and split once, stored as Arrow files in a cache folder, read as batches of ids.

`data.translation.TranslationData` is the entry point; `data.sources` says where the pairs come from.
"""
