"""What to do without a network, said for data of the kind that was asked for."""

from collections.abc import Iterator
from contextlib import contextmanager

from data.fetch import OFFLINE, FetchError

HUB_HINT = "data=bible_enfr needs no hub, only pip."


@contextmanager
def hinting(generated: str, packaged: str = "") -> Iterator[None]:
    """A FetchError from inside names these data sets in place of translations: one that is generated, one that pip
    fetches."""
    try:
        yield
    except FetchError as error:
        text = str(error).replace(OFFLINE, f"Without a network use data={generated}, which is generated.")
        raise FetchError(text.replace(HUB_HINT, f"data={packaged} needs no hub, only pip.")) from error.__cause__
