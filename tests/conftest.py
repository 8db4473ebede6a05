"""What all tests share."""

pytest_plugins = ["postgres_fixture"]
