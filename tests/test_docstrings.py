"""The names that `decoder` publishes are documented; a name inside that says it all needs no docstring."""

import decoder


def test_every_published_name_and_public_method_of_it_is_documented() -> None:
    published = {name: getattr(decoder, name) for name in decoder.__all__}
    methods = {
        f"{name}.{key}": value
        for name, one in published.items()
        if isinstance(one, type)
        for key, value in vars(one).items()
        if not key.startswith("_") and callable(value)
    }
    assert [name for name, one in (published | methods).items() if not one.__doc__] == []
