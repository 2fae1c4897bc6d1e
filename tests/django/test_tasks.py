"""Tasks: declaration, the signature at the call site, and the ways to enqueue."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest

import echoq_django as echoq
from echoq_django import JobState, ids
from echoq_django.errors import WrongKind
from echoq_django.jobs import RunningJob
from echoq_django.middleware import Middleware
from echoq_django.options import LATER_OPTIONS
from echoq_django.paths import digest
from echoq_django.payloads import decode_envelope
from echoq_django.signals import job_enqueued

LATER = timedelta(minutes=5)


@echoq.task
def add(a: int, b: int = 10) -> int:
    """Add two numbers."""
    return a + b


@echoq.task
def only(a, /, b, *, c, d=4):
    return [a, b, c, d]


@echoq.task
def gather(first, *rest, **named):
    return [first, list(rest), named]


@echoq.task(takes_context=True)
def report(job, number=1):
    return [type(job).__name__, getattr(job, "id", None), number]


def module_function(a=1):
    return a


# ── Declaration ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_is_a_function_that_can_still_be_called():
    assert add(2, 3) == 5
    assert add.name == "tests.django.test_tasks.add"
    assert (add.__name__, add.__doc__) == ("add", "Add two numbers.")
    assert repr(add) == "<Task tests.django.test_tasks.add on default>"


def test_attributes_of_a_function_do_not_become_the_tasks():
    def labelled():
        return 1

    labelled.name = labelled.options = labelled.func = labelled.takes_context = "not the task's"

    made = echoq.task(name="tests.labelled")(labelled)

    assert (made.name, made.func, made.takes_context) == ("tests.labelled", labelled, False)
    assert made() == 1


async def coroutine(n: int) -> int:
    return n


async def asynchronous_generator():
    yield 1


def generator():
    yield 1


class Place:
    @staticmethod
    def static():
        return 1

    def __call__(self):
        return 1


def wrapped():
    return 1


@pytest.mark.parametrize(
    ("function", "error", "remedy"),
    [
        (asynchronous_generator, TypeError, "asynchronous_generator is a generator, .* make it a function"),
        (generator, TypeError, "generator is a generator, .* make it a function"),
        (lambda: 1, ValueError, r"<lambda>' cannot be found .* define it in a module, or give it a `name`"),
        (staticmethod(module_function), TypeError, "not staticmethod: .* decorate the function itself"),
        (classmethod(module_function), TypeError, "not classmethod: .* decorate the function itself"),
        (functools.partial(module_function, 1), TypeError, "a function, not partial"),
        (Place, TypeError, "a function, not type"),
        (Place(), TypeError, "a function, not Place"),
        (len, TypeError, "a function, not builtin_function_or_method"),
        ("add", TypeError, "a function, not str"),
        (add, TypeError, r"test_tasks\.add is a task already: use func\.using"),
    ],
)
def test_what_cannot_be_a_task_is_refused_with_the_remedy(function, error, remedy):
    with pytest.raises(error, match=remedy):
        echoq.task(function)


def test_a_call_of_a_coroutine_function_is_a_coroutine():
    task = echoq.task(name="tests.coroutine")(coroutine)

    assert asyncio.run(task(7)) == 7
    assert asyncio.run(task.using(priority=1)(8)) == 8


def test_a_nested_function_is_refused_until_it_has_a_name():
    def inner():
        return 7

    with pytest.raises(ValueError, match=r"<locals>.inner' cannot be found by other processes"):
        echoq.task(inner)
    assert echoq.task(name="tests.inner")(inner).name == "tests.inner"


def test_a_wrapped_function_keeps_the_signature_of_the_one_inside():
    @echoq.task(name="tests.wrapper")
    @functools.wraps(module_function)
    def wrapper(*args, **kwargs):
        return module_function(*args, **kwargs)

    assert wrapper.enqueue(a=3).kwargs == {"a": 3}
    with pytest.raises(TypeError, match="unexpected keyword argument 'b'"):
        wrapper.enqueue(b=3)


def test_a_function_under_staticmethod_can_be_a_task():
    class Shelf:
        @staticmethod
        @echoq.task(name="tests.shelf")
        def put(a):
            return a

    assert Shelf.put.enqueue(3).task == "tests.shelf"


@pytest.mark.parametrize("name", ["", " ", "a b", "a\0b", "a\nb", "\ud800", "x" * 201, "a<b>", 5, b"name"])
def test_a_name_that_cannot_be_one_is_refused(name):
    with pytest.raises(ValueError, match="name"):
        echoq.task(name=name)(module_function)


@pytest.mark.parametrize("name", ["x", "shop.mail:send", "{x}", "päckchen.senden", "x" * 200])
def test_a_name_may_be_any_text_without_spaces(name, hands):
    job = echoq.task(name=name)(module_function).enqueue(3)

    hands.run()

    assert (job.result(), job.task) == (3, name)


@pytest.mark.parametrize("aliases", ["old", [""], [5], 5, None, ["new", b"old"]])
def test_aliases_are_names_in_a_list(aliases):
    with pytest.raises(TypeError, match="aliases takes a list of names"):
        echoq.task(name="tests.aliased", aliases=aliases)(module_function)


@pytest.mark.parametrize("value", [1, "yes", None])
def test_takes_context_is_true_or_false(value):
    with pytest.raises(TypeError, match="takes_context must be True or False"):
        echoq.task(takes_context=value)(module_function)


@pytest.mark.parametrize("function", [lambda: 1, lambda *args: 1, lambda **named: 1, lambda *, job: 1], ids=str)
def test_a_task_that_takes_its_context_has_a_parameter_for_it(function):
    with pytest.raises(TypeError, match="takes its context as first argument"):
        echoq.task(name="tests.contextless", takes_context=True)(function)


def test_the_decorator_takes_options_by_name_only():
    with pytest.raises(TypeError, match="by name only"):
        echoq.task(module_function, queue="mail")
    with pytest.raises(TypeError, match="a function, not str"):
        echoq.task("mail")


@pytest.mark.parametrize("option", ["prioritty", "delay", "run_at", "job_id", "self", *LATER_OPTIONS])
def test_the_decorator_names_an_option_that_it_has_not(option):
    with pytest.raises(TypeError, match=f"option '{option}'"):
        echoq.task(**{option: 1})


@pytest.mark.parametrize("option", ["prioritty", "name", "aliases", "takes_context", "self", *LATER_OPTIONS])
def test_using_names_an_option_that_it_has_not(option):
    with pytest.raises(TypeError, match=f"option '{option}'"):
        add.using(**{option: 1})


# ── Arguments ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("task", "args", "kwargs", "result"),
    [
        (add, (2,), {}, 12),
        (add, (2, 3), {}, 5),
        (add, (), {"b": 3, "a": 2}, 5),
        (add, (2,), {"b": 3}, 5),
        (only, (1, 2), {"c": 3}, [1, 2, 3, 4]),
        (only, (1,), {"b": 2, "c": 3, "d": 5}, [1, 2, 3, 5]),
        (gather, (1,), {}, [1, [], {}]),
        (gather, (1, 2), {"self": 3, "args": 4, "task": 5}, [1, [2], {"self": 3, "args": 4, "task": 5}]),
    ],
)
def test_arguments_come_back_as_they_went_in(hands, task, args, kwargs, result):
    job = task.enqueue(*args, **kwargs)
    hands.run()

    assert job.refresh().result() == result == task(*args, **kwargs)
    assert (job.args, job.kwargs) == (args, kwargs)


@pytest.mark.parametrize(
    ("task", "args", "kwargs", "said"),
    [
        (add, (), {}, "missing a required argument: 'a'"),
        (add, (1, 2, 3), {}, "too many positional arguments"),
        (add, (1,), {"a": 2}, "multiple values for argument 'a'"),
        (add, (1,), {"c": 2}, "unexpected keyword argument 'c'"),
        (only, (1, 2), {}, "missing a required .*argument: 'c'"),
        (only, (1, 2, 3), {"c": 3}, "too many positional arguments"),
        (only, (), {"a": 1, "b": 2, "c": 3}, "'a'"),
        (gather, (), {"x": 1}, "missing a required argument: 'first'"),
        (report, (1, 2), {}, "too many positional arguments"),
        (report, (), {"job": 2}, "unexpected keyword argument 'job'"),
    ],
)
def test_a_call_that_does_not_fit_fails_at_the_call_site(store, task, args, kwargs, said):
    for refused in (task.enqueue, task.bind):
        with store.refused(TypeError, said) as caught:
            refused(*args, **kwargs)
        assert str(caught.value).startswith(f"{task.name}(")
    with store.refused(TypeError, said):
        task.enqueue_in(5, *args, **kwargs)
    with store.refused(TypeError, said):
        task.enqueue_at(datetime.now(UTC), *args, **kwargs)


def test_a_task_may_take_arguments_with_any_name(hands):
    @echoq.task(name="tests.named")
    def named(func, delay, run_at, job_id, self=0):
        return [func, delay, run_at, job_id, self]

    job = named.enqueue_in(0, func=1, delay=2, run_at=3, job_id=4, self=5)
    hands.run()

    assert job.result() == [1, 2, 3, 4, 5]


# ── The context ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_that_takes_its_context_is_called_with_the_running_job(hands):
    job = report.enqueue(7)
    hands.run()

    assert job.result() == [RunningJob.__name__, job.id, 7]


def test_a_plain_call_of_a_task_that_takes_its_context_has_the_arguments_of_enqueue(hands):
    outer = echoq.task(name="tests.outer")(lambda: report(number=3))

    assert report(2) == ["NoneType", None, 2]

    job = outer.enqueue()
    hands.run()
    assert job.result() == [RunningJob.__name__, job.id, 3]


# ── Copies ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_using_answers_a_changed_copy(store):
    copy = add.using(queue="mail", priority=7)

    assert (copy.name, copy.options.queue, copy.options.priority) == (add.name, "mail", 7)
    assert copy(2, 3) == 5
    assert (add.options.queue, add.options.priority) == ("default", None)
    assert copy.using(queue="slow").options.priority == 7

    job = copy.enqueue(1)
    assert (job.queue, job.priority) == ("mail", 7)
    assert store.ids("mail", "pending") == [job.id]


def test_two_copies_and_the_task_share_no_plan(store):
    add.enqueue(1)
    jobs = [add.using(queue=queue).enqueue(1) for queue in ("one", "two")]

    assert [store.ids(queue, "pending") for queue in ("one", "two")] == [[job.id] for job in jobs]
    assert len(store.ids("default", "pending")) == 1


# ── Enqueue ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_enqueue_writes_one_pending_job(store):
    job = add.enqueue(2, b=3)

    assert store.ids("default", "pending") == [job.id]
    assert store.row(job) == {
        "state": "pending",
        "attempts": "0",
        "payload": '{"v":1,"task":"tests.django.test_tasks.add","args":[2],"kwargs":{"b":3}}',
    }
    assert (job.state, job.duplicate, job.args, job.kwargs) == (JobState.PENDING, False, (2,), {"b": 3})


@pytest.mark.parametrize(
    ("delay", "ms"),
    [(0.25, 250), (5, 5_000), (LATER, 300_000), (timedelta(microseconds=1), 1), (1e-9, None), (0, None)],
)
def test_enqueue_in_counts_from_the_clock_of_the_server(store, clock, delay, ms):
    job = add.enqueue_in(delay, 2, b=3)

    if ms is None:
        assert (store.ids("default", "pending"), job.state, job.run_at) == ([job.id], "pending", None)
    else:
        assert store.client.zscore(store.key("default", "schedule"), job.id) == 1_000_000 + ms
        assert (job.state, job.args, job.kwargs) == (JobState.SCHEDULED, (2,), {"b": 3})
        assert job.run_at == datetime.fromtimestamp((1_000_000 + ms) / 1000, UTC)


@pytest.mark.parametrize(
    ("run_at", "ms"),
    [
        (datetime(2030, 1, 1, tzinfo=UTC), 1_893_456_000_000),
        (datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 1_893_456_000_000),
        (datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 1_893_456_000_001),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1815, 12, 10, tzinfo=UTC), 0),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), 0),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))), 253_402_344_000_000),
    ],
)
def test_enqueue_at_rounds_up_to_whole_ms(store, clock, run_at, ms):
    job = add.enqueue_at(run_at, 2)

    assert store.client.zscore(store.key("default", "schedule"), job.id) == ms
    assert job.state == JobState.SCHEDULED


def test_a_job_whose_time_has_passed_runs_at_once(hands):
    job = add.enqueue_at(datetime(1815, 12, 10, tzinfo=UTC), 2)

    hands.queue.promote()

    assert hands.drain() == 1
    assert job.result() == 12


def test_a_far_future_can_be_written_and_read(store):
    job = add.enqueue_at(datetime.max.replace(tzinfo=UTC), 2)
    assert job.refresh().run_at == datetime.max.replace(tzinfo=UTC)

    job = add.enqueue_in(timedelta(days=365_000), 2)
    assert job.refresh().run_at.year > 3000


BAD_TIMES = [
    ("enqueue_in", -1, ValueError, "delay must not be negative"),
    ("enqueue_in", timedelta(microseconds=-1), ValueError, "delay must not be negative"),
    ("enqueue_in", float("nan"), ValueError, "delay must be finite"),
    ("enqueue_in", float("inf"), ValueError, "delay must be finite"),
    ("enqueue_in", float("-inf"), ValueError, "delay must be finite"),
    ("enqueue_in", 1e300, ValueError, "delay must be between 0 and 1,000 years"),
    ("enqueue_in", 10**400, ValueError, "delay must be between 0 and 1,000 years"),
    ("enqueue_in", timedelta.max, ValueError, "delay must be between 0 and 1,000 years"),
    ("enqueue_in", True, TypeError, "delay takes a timedelta or seconds, not True"),
    ("enqueue_in", "5", TypeError, "delay takes a timedelta or seconds, not '5'"),
    ("enqueue_at", datetime(2030, 1, 1), ValueError, "run_at is a naive datetime: make it aware"),  # noqa: DTZ001
    ("enqueue_at", 1_893_456_000, TypeError, "run_at takes an aware datetime, not int"),
    ("enqueue_at", "2030-01-01", TypeError, "run_at takes an aware datetime, not str"),
    ("enqueue_at", datetime(2030, 1, 1, tzinfo=UTC).date(), TypeError, "an aware datetime, not date"),
]


@pytest.mark.parametrize(("verb", "when", "error", "said"), BAD_TIMES, ids=lambda value: str(value)[:30])
def test_a_time_that_is_none_is_refused(store, verb, when, error, said):
    with store.refused(error, said):
        getattr(add, verb)(when, 2)
    with store.refused(error, said):
        asyncio.run(getattr(add, f"a{verb}")(when, 2))
    option = "delay" if verb == "enqueue_in" else "run_at"
    with store.refused(error, said):
        add.using(**{option: when})


@pytest.mark.parametrize(("verb", "when"), [("enqueue_in", None), ("enqueue_at", None)])
def test_no_time_at_all_is_refused(store, verb, when):
    with store.refused(TypeError, "delay|run_at"):
        getattr(add, verb)(when, 2)


def test_a_call_has_one_time():
    with pytest.raises(TypeError, match="delay or run_at, not both"):
        add.using(delay=5, run_at=datetime.now(UTC))


def test_a_time_given_with_the_call_takes_the_place_of_the_copys(store, clock):
    run_at = datetime(2030, 1, 1, tzinfo=UTC)

    assert add.using(run_at=run_at).enqueue_in(5, 1).run_at == datetime.fromtimestamp(1_005, UTC)
    assert add.using(delay=5).enqueue_at(run_at, 1).run_at == run_at


# ── Ids ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_id_of_the_callers_is_enqueued_once(store):
    first = add.using(job_id="JOB_order_7").enqueue(1)

    with store.unchanged():
        second = add.using(job_id="JOB_order_7", priority=5, delay=60).enqueue(2)

    assert (first.duplicate, second.duplicate) == (False, True)
    assert (second.id, second.args, second.state, second.priority) == ("JOB_order_7", (1,), "pending", 0)


def test_the_same_id_in_two_queues_names_two_jobs(store):
    jobs = [add.using(job_id="JOB_A", queue=queue).enqueue(1) for queue in ("one", "two")]

    assert [job.duplicate for job in jobs] == [False, False]


@pytest.mark.parametrize(
    ("job_id", "error"),
    [
        ("", WrongKind), ("JOB", WrongKind), ("job_A", WrongKind), ("ORD_A", WrongKind),
        ("JOB{A}", WrongKind), ("JOB A", WrongKind), ("JOB_A\0", WrongKind), ("JOB_A\n", WrongKind),
        ("JOB_Ä", WrongKind), ("JOB_\ud800", WrongKind), ("JOB" + "a" * 62, WrongKind),
        (b"JOB_A", TypeError), (7, TypeError),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_an_id_is_refused(store, job_id, error):
    with store.refused(error, "id of a job"):
        add.using(job_id=job_id).enqueue(1)
    with store.refused(error, "id of a job"):
        echoq.get_job(job_id)


def test_the_longest_id_can_be_used(hands):
    job = add.using(job_id="JOB" + "a" * 61).enqueue(1)
    hands.run()

    assert echoq.get_job(job.id).result() == 11


def test_ids_are_minted_in_order(store):
    jobs = [add.enqueue(i) for i in range(20)]

    assert [job.id for job in jobs] == sorted(job.id for job in jobs)
    assert all(ids.minted_at(job.id) == job.enqueued_at for job in jobs)


# ── Priorities ──────────────────────────────────────────────────────────────────────────────────────────────


def test_higher_priorities_are_claimed_first_and_equal_ones_in_mint_order(hands):
    jobs = {(p, n): add.using(priority=p).enqueue(n) for n in range(3) for p in (0, -100, 100, 1, -1)}
    expected = [jobs[key].id for key in sorted(jobs, key=lambda key: (-key[0], key[1]))]

    assert [claimed.id for claimed in hands.claim(limit=100)] == expected


def test_equal_priorities_keep_mint_order_after_a_delay_and_after_a_retry(hands, clock):
    @echoq.task(name="tests.twice", takes_context=True, backoff=echoq.Fixed(ms=10))
    def twice(job):
        if job.failures == 0:
            raise ValueError("once more")

    retried = twice.enqueue()
    delayed = add.enqueue_in(1, 1)
    hands.run()
    pending = [add.enqueue(n) for n in range(2)]
    urgent = add.using(priority=1).enqueue(9)
    clock(1_002_000)
    hands.queue.promote()

    order = [urgent, retried, delayed, *pending]
    assert [claimed.id for claimed in hands.claim(limit=10)] == [job.id for job in order]


@pytest.mark.parametrize(
    ("priority", "error"),
    [(101, ValueError), (-101, ValueError), (True, TypeError), (1.0, TypeError), ("1", TypeError)],
)
def test_a_priority_is_a_whole_number_from_minus_100_to_100(priority, error):
    with pytest.raises(error, match="priority must be"):
        add.using(priority=priority)


def test_a_priority_survives_a_reprocess(hands):
    job = add.using(priority=9).enqueue(1)
    hands.run()
    job.reprocess()
    other = add.using(priority=8).enqueue(1)

    assert [claimed.id for claimed in hands.claim(limit=2)] == [job.id, other.id]


def test_a_task_and_its_changed_copies_travel_by_name():
    made = echoq.task(name="tests.travels")(lambda n: n)
    changed = made.using(priority=7, queue="other")

    assert pickle.loads(pickle.dumps(made)) is made
    assert copy.deepcopy(made) is made
    again = pickle.loads(pickle.dumps(changed))
    assert (again.name, again.options) == (made.name, changed.options)
    call = pickle.loads(pickle.dumps(made.bind(3)))
    assert (call.task, call.args, dict(call.kwargs)) == (made, (3,), {})


def test_a_method_is_refused_and_a_static_one_is_not():
    def method(self, n):
        return n

    method.__qualname__ = "Shop.method"
    with pytest.raises(TypeError, match="is a method"):
        echoq.task(method)

    def static(n):
        return n

    static.__qualname__ = "Shop.static"
    assert echoq.task(static)(3) == 3


def test_a_function_s_own_attributes_do_not_replace_the_task_s():
    def tagged(n):
        return n

    tagged.enqueue = tagged.bind = None
    made = echoq.task(name="tests.tagged")(tagged)

    assert made.enqueue(1).task == "tests.tagged"


# ── Unique keys ─────────────────────────────────────────────────────────────────────────────────────────────


@echoq.task(unique=echoq.Unique())
def sync(a, /, b=2, *rest, c=3, **named):
    return None


@echoq.task(name="tests.shop:import", unique=echoq.Unique("nightly run"))
def fetch():
    return None


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {}), ((1, 2), {}), ((1,), {"b": 2}), ((1,), {"c": 3, "b": 2}), ((1, 2), {"c": 3})],
)
def test_one_call_has_one_key_however_it_is_written(args, kwargs):
    assert sync.unique_key(*args, **kwargs) == f"t:{sync.name}:{digest({'a': 1, 'b': 2, 'c': 3, 'rest': []})}"


def test_keywords_that_are_caught_lie_beside_the_parameters_and_further_arguments_are_a_list():
    expected = {"a": 1, "b": 5, "c": 3, "rest": [6, {"$tuple": [7]}], "x": None}

    assert sync.unique_key(1, 5, 6, (7,), x=None) == f"t:{sync.name}:{digest(expected)}"


@pytest.mark.parametrize("name", ["a", "rest"])
def test_two_arguments_of_one_name_cannot_be_told_apart(store, name):
    with store.refused(ValueError, f"test_tasks.sync was given two arguments '{name}': rename one"):
        sync.enqueue(1, **{name: 2})


def test_a_context_is_no_part_of_the_key():
    task = echoq.task(name="tests.context", takes_context=True, unique=echoq.Unique(only=[".row"]))(
        lambda job, row: None
    )

    assert task.unique_key(5) == f"t:tests.context:{digest({'.row': 5})}"


def test_a_function_that_makes_keys_sees_the_call_with_its_defaults():
    seen = []
    task = sync.using(unique=echoq.Unique(lambda call: seen.append(dict(call)) or f"row {call['a']}"))

    assert task.unique_key(1, 2, 3, x=4) == f"t:{sync.name}:row 1"
    assert seen == [{"a": 1, "b": 2, "c": 3, "rest": [3], "x": 4}]


def test_keys_of_two_tasks_are_never_the_same():
    other = echoq.task(name="tests.shop", unique=echoq.Unique("import:nightly run"))(lambda: None)

    assert (fetch.unique_key(), other.unique_key()) == (
        "t:tests.shop%3Aimport:nightly run",
        "t:tests.shop:import:nightly run",
    )


def test_a_key_that_cannot_be_made_fails_the_call(store):
    task = sync.using(unique=echoq.Unique(only=[".x.id"]))
    with store.refused(ValueError, r"Unique\(only=\) has the path '\.x\.id', which matches nothing in this call"):
        task.enqueue(1, x={"ID": 5})
    with store.refused(ValueError, r"^items\[1\]: Unique\(only=\) has the path"):
        echoq.enqueue_many([task.bind(1, x={"id": 5}), task.bind(1)])
    with store.refused(TypeError, r"test_tasks.add has no unique key: give it the option unique=echoq.Unique"):
        add.unique_key(1)
    with store.refused(TypeError, "missing a required argument: 'a'"):
        sync.unique_key()


def test_it_can_be_asked_who_holds_a_key_and_the_key_can_be_freed(store):
    assert (sync.holder(1), sync.free(1)) == (None, False)
    job = sync.enqueue(1)

    assert (sync.holder(1).id, sync.holder(1).args, sync.holder(2)) == (job.id, (1,), None)
    assert asyncio.run(sync.aholder(1, b=2)).id == job.id
    assert (sync.free(1), sync.free(1), sync.holder(1)) == (True, False, None)
    again = sync.enqueue(1)
    assert (again.duplicate, store.ids("default", "pending")) == (False, [job.id, again.id])
    assert asyncio.run(sync.afree(1))


def test_a_duplicate_is_a_handle_of_the_job_that_is_there(store, hands):
    task = sync.using(unique=echoq.Unique("one", scope="active"))
    job = task.using(priority=7).enqueue(1)
    duplicate = task.enqueue(2)

    assert (duplicate.id, duplicate.duplicate, duplicate.args, duplicate.priority) == (job.id, True, (1,), 7)
    hands.claim()
    assert task.enqueue(3).state == JobState.ACTIVE


def test_duplicates_are_found_within_many(store):
    jobs = echoq.enqueue_many([sync.bind(1), sync.bind(2), add.bind(1), sync.bind(1, b=2), sync.bind(2)])

    assert [job.duplicate for job in jobs] == [False, False, False, True, True]
    assert [jobs[3].id, jobs[4].id] == [jobs[0].id, jobs[1].id]
    assert store.ids("default", "pending") == [job.id for job in jobs[:3]]


# ── Middleware around enqueue, and the signal after it ──────────────────────────────────────────────────────


class Stamp(Middleware):
    """Writes a header into each call, after those that were there."""

    seen: list

    def enqueue(self, sendings, send):
        Stamp.seen.append(
            [(sending.task.name, sending.args, dict(sending.headers), sending.queue) for sending in sendings]
        )
        for i, sending in enumerate(sendings):
            sending.headers["stamp"] = f"{i}{sending.headers.get('own', '')}"
        jobs = send(sendings)
        Stamp.seen.append([job.id for job in jobs])
        return jobs


class Scribble(Middleware):
    """Writes what is no header."""

    def enqueue(self, sendings, send):
        sendings[-1].headers["count"] = 5
        return send(sendings)


class Drop(Middleware):
    """Takes a call out of the list."""

    def enqueue(self, sendings, send):
        sendings.pop()
        return send(sendings)


@pytest.fixture
def stamp(configure):
    Stamp.seen = []
    configure(MIDDLEWARE=[f"{__name__}.Stamp"])
    return Stamp.seen


def headers_of(store, job):
    return decode_envelope(store.client.hget(store.key(job.queue, f"job:{job.id}"), "payload")).headers


@pytest.mark.parametrize(
    "enqueue",
    [
        lambda task: task.enqueue(5),
        lambda task: asyncio.run(task.aenqueue(5)),
        lambda task: task.enqueue_in(60, 5),
        lambda task: echoq.enqueue_many([task.bind(5)])[0],
        lambda task: asyncio.run(echoq.aenqueue_many([task.bind(5)]))[0],
    ],
)
def test_middleware_is_around_every_way_to_enqueue_and_its_headers_travel(store, stamp, enqueue):
    task = add.using(headers={"own": "!"}, queue="mail")

    job = enqueue(task)

    assert stamp == [[(add.name, (5,), {"own": "!"}, "mail")], [job.id]]
    assert job.headers == headers_of(store, job) == {"own": "!", "stamp": "0!"}
    assert task.options.headers == {"own": "!"}


def test_middleware_is_called_once_for_many(store, stamp):
    jobs = echoq.enqueue_many([add.bind(1), add.using(queue="mail").bind(2), add.using(priority=3).bind(3)])

    assert [headers_of(store, job) for job in jobs] == [{"stamp": "0"}, {"stamp": "1"}, {"stamp": "2"}]
    assert [len(seen) for seen in stamp] == [3, 3]
    assert [(job.args, job.queue, job.priority) for job in jobs] == [
        ((1,), "default", 0),
        ((2,), "mail", 0),
        ((3,), "default", 3),
    ]


def test_middleware_sees_no_call_that_is_none(store, stamp):
    with store.refused(TypeError, "test_tasks.add"):
        add.enqueue(1, 2, 3)
    with store.refused(TypeError, r"items\[1\] must be a call"):
        echoq.enqueue_many([add.bind(1), add])
    assert echoq.enqueue_many([]) == []
    assert stamp == []


def test_a_header_of_middleware_that_is_no_text_is_refused(store, configure):
    configure(MIDDLEWARE=[f"{__name__}.Scribble"])

    with store.refused(TypeError, r"headers\['count'\] is text, it cannot be of type int"):
        add.enqueue(1)
    with store.refused(TypeError, r"items\[1\]: headers\['count'\] is text"):
        echoq.enqueue_many([add.bind(1), add.bind(2)])


def test_middleware_that_changes_the_list_of_calls_is_refused(store, configure):
    configure(MIDDLEWARE=[f"{__name__}.Drop"])

    for enqueue in (lambda: add.enqueue(1), lambda: echoq.enqueue_many([add.bind(1), add.bind(2)])):
        with store.refused(RuntimeError, "A middleware changed the list of calls"):
            enqueue()


def test_the_headers_of_a_handle_cannot_be_changed():
    with pytest.raises(TypeError):
        add.using(headers={"a": "b"}).enqueue(1).headers["a"] = "c"


@pytest.fixture
def told():
    """Give the list of what job_enqueued tells."""
    told = []

    def receiver(sender, job, **_):
        told.append((sender, job))

    job_enqueued.connect(receiver)
    yield told
    job_enqueued.disconnect(receiver)


def test_a_signal_tells_of_each_job_that_was_made_and_of_no_duplicate(told):
    jobs = [
        add.enqueue(1),
        add.using(priority=3, job_id="JOB_mine").enqueue(2),
        *echoq.enqueue_many([sync.bind(1), sync.bind(2)]),
        asyncio.run(add.aenqueue(3)),
    ]
    add.using(job_id="JOB_mine").enqueue(2)
    echoq.enqueue_many([sync.bind(2)])

    assert told == list(zip([add, add, sync, sync, add], jobs, strict=True))


def test_a_signal_tells_of_those_that_were_confirmed_before_others_failed(store, told):
    store.client.set(store.key("broken", "pending"), "of another type")

    with pytest.raises(echoq.EnqueueFailed) as failed:
        echoq.enqueue_many([add.bind(1), add.using(queue="broken").bind(2), add.bind(3)])

    assert len(failed.value.job_ids) == 1
    assert [job.id for _, job in told] == store.ids("default", "pending")
    assert len(told) == 2


def test_a_receiver_that_fails_changes_nothing(store, told, caplog):
    def fail(**_):
        raise ValueError("boom")

    job_enqueued.connect(fail)
    try:
        job = add.enqueue(1)
    finally:
        job_enqueued.disconnect(fail)

    assert store.ids("default", "pending") == [job.id]
    assert [one.id for _, one in told] == [job.id]
    assert "boom" in caplog.text
