"""Methods of the client, made from signatures: arguments become a request, and a response becomes the result.

`api/` declares each endpoint as a function without a body. The decorators here make it a method that is awaited on
`postroom.Client` and that blocks on `postroom.sync.Client`. Only arguments that the caller passes are sent: a default
in a signature is the server's.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

import msgspec

from postroom.blocking import iterate_blocking, run_blocking
from postroom.client.endpoint import ClientEndpoint
from postroom.client.session import Session


class Asynchronous:
    """Marks a client whose methods are awaited."""


class Synchronous:
    """Marks a client whose methods block."""


Kind = TypeVar("Kind", Asynchronous, Synchronous)
P = ParamSpec("P")
Result = TypeVar("Result")
Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)
Page_co = TypeVar("Page_co", covariant=True)
Declaration = Callable[Concatenate[Any, P], Result]


class Resource(Generic[Kind]):
    """The endpoints of one tag."""

    def __init__(self, session: Session) -> None:
        self.session = session


class ResultPage(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """A page of a listing. `next_cursor` is the `cursor` of the next page, None on the last."""

    items: list[Item]
    next_cursor: str | None


class _Items(Protocol[Item_co]):
    """A page of a listing, as a server returns it."""

    @property
    def items(self) -> Sequence[Item_co]: ...


class _Followable(_Items[Item_co], Protocol[Item_co]):
    """A page with a cursor after its last item, even if nothing follows yet."""

    @property
    def cursor(self) -> str: ...


def _itself(work: Any) -> Any:
    return work


class _Method(Generic[P]):
    """A declared endpoint as an attribute of resources."""

    def __init__(self, declaration: Callable[..., Any], method: str, path: str, **options: Any) -> None:
        self.__doc__ = declaration.__doc__
        self.endpoint = ClientEndpoint(declaration, method, path, **options)

    def _bind(
        self, resource: Resource[Any], perform: Callable[[Session, Mapping[str, Any]], Any]
    ) -> Callable[..., Any]:
        signature = self.endpoint.signature

        def call(*args: Any, **keywords: Any) -> Any:
            return perform(resource.session, signature.bind(*args, **keywords).arguments)

        call.__name__, call.__doc__ = self.endpoint.name, self.__doc__
        call.__signature__ = signature  # type: ignore[attr-defined]  # read by `inspect` and `help`
        return call


class CallMethod(_Method[P], Generic[P, Result]):
    """An endpoint with one result."""

    @overload
    def __get__(self, resource: Resource[Asynchronous], owner: object) -> Callable[P, Coroutine[Any, Any, Result]]: ...
    @overload
    def __get__(self, resource: Resource[Synchronous], owner: object) -> Callable[P, Result]: ...
    def __get__(self, resource: Resource[Any], owner: object) -> Callable[P, Any]:
        run = run_blocking if resource.session.transport.is_blocking else _itself
        return self._bind(resource, lambda session, arguments: run(self.endpoint.call(session, arguments)))


class ListingMethod(_Method[P], Generic[P, Page_co]):
    """An endpoint with pages of results."""

    @overload
    def __get__(self, resource: Resource[Asynchronous], owner: object) -> Callable[P, "AsyncPages[Page_co]"]: ...
    @overload
    def __get__(self, resource: Resource[Synchronous], owner: object) -> Callable[P, "BlockingPages[Page_co]"]: ...
    def __get__(self, resource: Resource[Any], owner: object) -> Callable[P, Any]:
        kind = BlockingPages if resource.session.transport.is_blocking else AsyncPages
        return self._bind(resource, lambda session, arguments: kind(self.endpoint, session, arguments))


class DownloadMethod(_Method[P]):
    """An endpoint with a file as its result, in pieces."""

    @overload
    def __get__(self, resource: Resource[Asynchronous], owner: object) -> Callable[P, AsyncIterator[bytes]]: ...
    @overload
    def __get__(self, resource: Resource[Synchronous], owner: object) -> Callable[P, Iterator[bytes]]: ...
    def __get__(self, resource: Resource[Any], owner: object) -> Callable[P, Any]:
        iterate = iterate_blocking if resource.session.transport.is_blocking else _itself
        return self._bind(resource, lambda session, arguments: iterate(self.endpoint.download(session, arguments)))


class _Pages(Generic[Page_co]):
    """The pages of a listing, fetched one after the other while they are iterated."""

    def __init__(self, endpoint: ClientEndpoint, session: Session, arguments: Mapping[str, Any]) -> None:
        self._endpoint, self._session, self._arguments = endpoint, session, arguments

    async def _pages(self, cursor: str | None = None) -> AsyncGenerator[Any, None]:
        while True:
            more = {} if cursor is None else {"cursor": cursor}
            page = await self._endpoint.call(self._session, {**self._arguments, **more})
            yield page
            cursor = getattr(page, "next_cursor", None)  # short listings have one page
            if cursor is None:
                return

    async def _items(self) -> AsyncGenerator[Any, None]:
        async for page in self._pages():
            for item in page.items:
                yield item

    async def _follow(self, interval_s: float) -> AsyncGenerator[Any, None]:
        cursor = None
        while True:
            async for page in self._pages(cursor):
                for item in page.items:
                    yield item
                cursor = page.cursor
            await self._session.transport.sleep(interval_s)


class AsyncPages(_Pages[Page_co]):
    """A listing: `async for` iterates over the items of all pages."""

    def __aiter__(self: "AsyncPages[_Items[Item]]") -> AsyncIterator[Item]:
        return self._items()

    def pages(self) -> AsyncIterator[Page_co]:
        """The pages, for their other fields."""
        return self._pages()

    def follow(self: "AsyncPages[_Followable[Item]]", interval_s: float = 1.0) -> AsyncIterator[Item]:
        """All items, and then each new one, for which it asks every `interval_s` seconds."""
        return self._follow(interval_s)


class BlockingPages(_Pages[Page_co]):
    """A listing: `for` iterates over the items of all pages."""

    def __iter__(self: "BlockingPages[_Items[Item]]") -> Iterator[Item]:
        return iterate_blocking(self._items())

    def pages(self) -> Iterator[Page_co]:
        """The pages, for their other fields."""
        return iterate_blocking(self._pages())

    def follow(self: "BlockingPages[_Followable[Item]]", interval_s: float = 1.0) -> Iterator[Item]:
        """All items, and then each new one, for which it asks every `interval_s` seconds."""
        return iterate_blocking(self._follow(interval_s))


def call(
    method: str, path: str, *, body: bool = False, keyed: bool = False, accepts: tuple[str, ...] = ()
) -> Callable[[Declaration[P, Result]], CallMethod[P, Result]]:
    """An endpoint with one result; its arguments are fields of the body or parameters of the query."""

    def declare(declaration: Declaration[P, Result]) -> CallMethod[P, Result]:
        return CallMethod(declaration, method, path, has_body=body, is_keyed=keyed, accepts=accepts)

    return declare


def listing(path: str) -> Callable[[Declaration[P, Result]], ListingMethod[P, Result]]:
    """An endpoint with pages."""
    return lambda declaration: ListingMethod(declaration, "GET", path)


def download(path: str) -> Callable[[Declaration[P, bytes]], DownloadMethod[P]]:
    """An endpoint with a file as its result."""
    return lambda declaration: DownloadMethod(declaration, "GET", path)
