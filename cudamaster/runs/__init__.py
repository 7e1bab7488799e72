"""A recorded search: the one place where the search and the workbench meet."""
