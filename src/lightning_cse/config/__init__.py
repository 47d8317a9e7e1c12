"""Configs: composing, checking and launching them."""
