"""Adds up a small ledger."""
