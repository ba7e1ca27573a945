"""Postroom beside programs that others wrote.

Tests without a mark are the short form, which `./dev test` runs. Those with the mark `world` take longer; `./dev world`
runs all of them.
"""
