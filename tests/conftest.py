"""What all tests share."""

from datetime import timedelta

from hypothesis import settings

pytest_plugins = ["postgres_fixture"]

# Hypothesis allows an example 200 ms by itself: too little where two workers, and the daemons that they start, share two cores.
_given = settings.get_profile(settings.get_current_profile_name())
if _given.deadline is not None:  # in CI there is none
    settings.register_profile("workers", _given, deadline=timedelta(seconds=2))
    settings.load_profile("workers")
