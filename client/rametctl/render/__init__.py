"""Renderers: values to lines; nothing here prints."""
