"""Handlers that show how one is written."""
