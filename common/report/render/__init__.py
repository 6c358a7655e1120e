"""Renderers of one Report: Markdown, long CSV, a terminal table, a self-contained HTML page."""
