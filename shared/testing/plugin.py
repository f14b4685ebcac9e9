"""The pytest plug-in: fixtures for tests of what you build on treadle, in memory, on a virtual clock, with faults on demand.

    async def test_the_work_survives_its_worker(treadle_client, treadle_worker, faults, run_until_idle):
        treadle_worker(handlers=thumbs, name="w1")
        ...
        faults.kill("w1")
        await run_until_idle()

A test that asks for one of them is an `async def`, and runs on the kit's own loop. Everything else is imported only when
such a test runs: a test that asks for none of them costs nothing. The wings bring the client and the Worker, as the
entry points of the group `treadle.testing`.
"""

from __future__ import annotations

import inspect
import os
import random
import warnings
from collections.abc import Awaitable, Callable, Generator, Iterator
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .injection import Faults
    from .kit import Kit, StoreInMemory

SEED_MAX = 2**63 - 1
SEED_VARIABLE = "TREADLE_TEST_SEED"
PARTS = "treadle.testing"
_KIT = "_treadle_kit"
_seed_key: pytest.StashKey[int | None] = pytest.StashKey()
_kit_key: pytest.StashKey[Kit] = pytest.StashKey()
_test_key: pytest.StashKey[Callable[..., Any]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("treadle", "treadle").addoption(
        "--treadle-seed",
        metavar="N",
        default=None,
        help=f"the seed of every test with treadle's fixtures, to see a failure again (else {SEED_VARIABLE}, else drawn)",
    )


def pytest_configure(config: pytest.Config) -> None:
    given: str | None = config.getoption("--treadle-seed")
    where = "--treadle-seed" if given is not None else SEED_VARIABLE
    config.stash[_seed_key] = read_seed(given or os.environ.get(SEED_VARIABLE) or None, where)


def read_seed(given: str | None, where: str) -> int | None:
    """The seed as it was given; None for none. UsageError where it is no whole number of 0 to 2**63 - 1."""
    if given is None:
        return None
    if not given.isascii() or not given.isdecimal() or len(given) > 19 or int(given) > SEED_MAX:
        raise pytest.UsageError(f"{where}: {given[:80]!r} is no seed, must be a whole number of 0 to {SEED_MAX}")
    return int(given)


def _part(name: str) -> Any:
    """What a wing brings: `client` or `worker`."""
    for entry in entry_points(group=PARTS, name=name):
        return entry.load()
    raise pytest.UsageError(f"treadle is installed without its entry point {PARTS}:{name}; install it again")


# --- fixtures ---


@pytest.fixture
def _treadle_kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    try:
        from .kit import Kit
    except ModuleNotFoundError as error:
        pytest.fail(f"treadle's fixtures need {error.name}: install treadle with its extra [test]", pytrace=False)
    if not inspect.iscoroutinefunction(request.node.stash.get(_test_key, None)):
        pytest.fail(
            f"{request.node.name}: treadle's fixtures live on a virtual clock, so the test must be an `async def`",
            pytrace=False,
        )
    given = request.config.stash.get(_seed_key, None)
    seed = random.SystemRandom().randrange(2**32) if given is None else given
    kit = request.node.stash[_kit_key] = Kit(seed)
    try:
        yield kit
    finally:
        kit.close()


@pytest.fixture
def treadle_store(_treadle_kit: Kit) -> StoreInMemory:
    """A store in memory, new for each test: what `Client.connect(treadle_store, actor="bob")` takes in place of a URL.

    It runs the real function library on fakeredis. Its clock begins at the present time, to the second, and is virtual.
    """
    return _treadle_kit.store


@pytest.fixture
def treadle_client(_treadle_kit: Kit) -> Iterator[Any]:
    """A `treadle.coordinator.Client` that is open on the store, as actor "tester"; `faults.cut("client")` cuts it off."""
    with _part("client")(_treadle_kit) as client:
        yield client


@pytest.fixture
def treadle_worker(_treadle_kit: Kit, request: pytest.FixtureRequest) -> Any:
    """Starts Workers: `treadle_worker(handlers=module, name="w1", slots=2, lease_ttl_s=10, groups="*")` -> a handle.

    `handlers`: a module, a mapping of capability to function, or handlers; default: those of the test's own module.
    See `treadle.worker.testing.Workers`.
    """
    return _part("worker")(_treadle_kit, request.node.getparent(pytest.Module).obj)


@pytest.fixture
def faults(_treadle_kit: Kit) -> Faults:
    """Faults on demand: lose_reply, cut and heal, kill, pause, no_library. See `treadle.shared.testing.injection`."""
    from .injection import Faults

    return Faults(_treadle_kit)


@pytest.fixture
def run_until_idle(_treadle_kit: Kit) -> Callable[..., Awaitable[float]]:
    """`await run_until_idle(within_s=600)`: lets virtual time pass until nothing is left to do; gives the seconds."""
    from .idle import Runner

    return Runner(_treadle_kit).until_idle


@pytest.fixture
def run_at_most(_treadle_kit: Kit) -> Callable[..., Awaitable[int]]:
    """`await run_at_most(3, within_s=600)`: lets at most so many handler runs begin and end; gives how many did."""
    from .idle import Runner

    return Runner(_treadle_kit).at_most


# --- running the test on the kit's loop, and what is said when it fails ---


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # Kept before another plug-in for async tests puts its own runner around the function.
    if isinstance(item, pytest.Function) and _KIT in item.fixturenames:
        item.stash[_test_key] = item.obj


# The old form of wrappers, since this module is loaded by whatever pytest there is.
@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, None]:
    kit = pyfuncitem.stash.get(_kit_key, None)
    if kit is None:
        yield
        return
    test, before = pyfuncitem.stash[_test_key], pyfuncitem.obj

    def on_the_kits_loop(**given: Any) -> None:
        kit.run(test(**given))
        kit.raise_broken()
        for unreached in kit.losses.unreached():
            warnings.warn(unreached, stacklevel=1)

    pyfuncitem.obj = on_the_kits_loop
    try:
        yield
    finally:
        pyfuncitem.obj = before


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    report: pytest.TestReport = (yield).get_result()
    kit = item.stash.get(_kit_key, None)
    if kit is not None and report.failed:
        report.sections.append(("treadle", kit.story()))
