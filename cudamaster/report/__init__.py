"""The report: what runs came to, as numbers, tables, a page and figures.

`data` holds what is known, `loading` reads it from folders, `numbers` computes from it; nothing here changes a run.
"""
