"""A module whose docstring has no findings."""
x = """
whoever: a string that is not a docstring
"""
