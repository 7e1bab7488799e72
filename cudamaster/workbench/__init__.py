"""Evaluates and profiles candidates: one task, one precision, one device."""
