"""A docstring that counts anew."""


def f():
    """Tells how long to wait."""
    # whoever waits
    return "# anew"
