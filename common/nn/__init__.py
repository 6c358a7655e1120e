"""Layers that more than one paper uses."""
