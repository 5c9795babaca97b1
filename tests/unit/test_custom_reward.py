"""The user's reward function in real processes: what it may return, and all the ways in which it can go wrong."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import psutil
import pytest

from onepo.data.schema import parse_task
from onepo.errors import UserError
from onepo.rewards import custom_process
from onepo.rewards.custom import CustomReward, check_reward_function
from onepo.rewards.visible_answer import visible_answer
from recipes.own_reward.make_data import custom
from recipes.quickstart.task import record
from tests.conftest import ROOT

MESSAGES = [{"role": "user", "content": "Add 2 and 3."}]
ENDLESS = "\n    while True: pass"
BLOCKED = "\n    import ctypes; ctypes.PyDLL(None).sleep(1000)"  # keeps the interpreter's lock
PATIENT = 60  # seconds, for calls that are not to time out
# what a function does is in its record
ACTOR = """\
import os, pathlib, subprocess, sys, time

{async_}def score(messages, response, record):
    if "began" in record:
        pathlib.Path(record["began"]).write_text(str(os.getpid()))
    exec(record.get("do", ""))
    return eval(record.get("give", "os.getpid()"))
"""
OWNER = """\
import asyncio, signal, sys
from onepo.rewards.custom import CustomReward

reward = CustomReward(sys.argv[1], timeout=600, workers=2)
if sys.argv[2] == "score":
    asyncio.run(reward.score(messages=[], response="", record={}))
signal.pause()
"""


def ends(pid: int, seconds: float = 15) -> bool:
    """Whether the process ends within so many seconds."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], seconds)[0])
    finally:
        os.close(process)


@pytest.fixture
def write(tmp_path):
    """write(code): the specification of its function ``score``."""

    def write(code: str, name: str = "reward.py") -> str:
        (tmp_path / name).write_text(code)
        return f"{tmp_path / name}:score"

    return write


@pytest.fixture
def make(write):
    made = []

    def make(code: str, *, timeout: float = PATIENT, workers: int = 1) -> CustomReward:
        made.append(CustomReward(write(code), timeout=timeout, workers=workers))
        return made[-1]

    yield make
    for reward in made:
        reward.close()


@pytest.fixture
def actor(make):
    """actor(...): its record says what a call does (``do``) and returns (``give``, by default its process)."""
    return lambda async_="", **options: make(ACTOR.format(async_=async_), **options)


@pytest.fixture(scope="module", params=["", "async "], ids=["plain", "async"])
def healthy(request, tmp_path_factory):
    """An actor of each kind that no test harms."""
    file = tmp_path_factory.mktemp("healthy") / "reward.py"
    file.write_text(ACTOR.format(async_=request.param))
    reward = CustomReward(f"{file}:score", timeout=PATIENT, workers=1)
    yield reward
    reward.close()


@pytest.fixture
def fifo(tmp_path) -> Path:
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def call(reward, response="5", **record):
    return reward.score(messages=MESSAGES, response=response, record=record)


def score(reward, response="5", **record):
    return asyncio.run(call(reward, response, **record))


def scores(reward, *records):
    async def gather():
        return await asyncio.gather(*(call(reward, **record) for record in records))

    return asyncio.run(gather())


@pytest.mark.parametrize("async_", ["", "async "])
def test_the_function_gets_the_prompt_the_answer_and_the_record(make, async_):
    code = "def score(*, record, response, messages):\n    return float(response) == record['sum'] and len(messages[0])"
    reward = make(async_ + code)
    right = score(reward, "5", sum=5)
    assert (right.value, right.failure, right.explanation) == (2.0, None, None) and 0 < right.seconds < PATIENT
    assert score(reward, "6", sum=5).value == 0.0


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("0.1", 0.1),
        ("-3", -3.0),
        ("True", 1.0),
        ("__import__('fractions').Fraction(1, 4)", 0.25),
        ("__import__('numpy').float32(0.5)", 0.5),
        ("__import__('numpy').bool_(True)", 1.0),
    ],
)
def test_what_counts_as_a_number(healthy, given, value):
    assert score(healthy, give=given).value == value


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("None", "None"),
        ("'0.5'", "'0.5'"),
        ("float('nan')", "nan"),
        ("float('inf')", "inf"),
        ("10 ** 400", "1000000"),
        ("1j", "1j"),
        ("[1.0]", "[1.0]"),
        ("__import__('numpy').ones(2)", "array"),
        ("'x' * 10**6 + '\\n'", "'xxx"),
        ("open(os.devnull)", "<_io.TextIOWr"),
    ],
)
def test_what_is_no_finite_number_is_a_failure_and_no_zero(healthy, given, found):
    result = score(healthy, give=given)
    assert (result.value, result.failure) == (None, "not_a_number")
    assert result.explanation.startswith(f"found {found}") and result.explanation.endswith(
        ", expected a finite number of 32 bits"
    )
    assert len(result.explanation) < 400 and "\n" not in result.explanation


@pytest.mark.parametrize(
    ("code", "explanation"),
    [
        ("raise ValueError('no\\nnumber \\x1b[31m')", "ValueError: no number \\x1b[31m (reward.py, line 2)"),
        ("assert False", "AssertionError (reward.py, line 2)"),
        ("return record['sum']", "KeyError: 'sum' (reward.py, line 2)"),
        ("__import__('json').loads('{')", "JSONDecodeError: Expecting property name"),
        ("raise SystemExit(3)", "SystemExit: 3 (reward.py, line 2)"),
        ("input()", "EOFError: EOF when reading a line (reward.py, line 2)"),
        ("return score(messages, response, record)", "RecursionError: maximum recursion depth exceeded"),
        ("raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})", "E (reward.py, line 2)"),
        ("raise ValueError('x' * 10**6)", "ValueError: xxx"),
    ],
)
def test_an_exception_is_told_with_its_place(make, code, explanation):
    reward = make(f"def score(messages, response, record):\n    {code}")
    result = score(reward)
    assert (result.value, result.failure) == (None, "error")
    assert result.explanation.startswith(explanation) and result.explanation.endswith("(reward.py, line 2)")
    assert len(result.explanation) < 400


def test_an_object_whose_call_is_async_is_awaited(make):
    reward = make(
        "class Score:\n"
        "    async def __call__(self, *, messages, response, record):\n"
        "        return 0.5\n"
        "score = Score()"
    )
    assert score(reward).value == 0.5


@pytest.mark.parametrize("async_", ["", "async "])
def test_a_generator_is_refused(make, async_):
    with pytest.raises(UserError, match="score is a generator"):
        make(f"{async_}def score(messages, response, record):\n    yield 0.5")


def test_an_exception_of_an_async_function_ends_nothing_else(actor):
    bad, good = scores(actor("async "), {"do": "raise SystemExit(3)"}, {})
    assert bad.explanation == "SystemExit: 3 (reward.py, line 6)" and bad.failure == "error"
    assert good.failure is None


@pytest.mark.parametrize("endless", ["while True: pass", "__import__('ctypes').PyDLL(None).sleep(99)"])
def test_a_call_that_does_not_end_is_ended_while_the_others_go_on(actor, tmp_path, endless):
    reward = actor(timeout=2, workers=2)
    scores(reward, {}, {})  # both workers are there
    late, *others = scores(reward, {"do": endless, "began": str(tmp_path / "pid")}, *[{}] * 6)
    assert (late.value, late.failure) == (None, "timed_out")
    assert late.explanation == "no result within 2 seconds (REWARD_FUNCTION_TIMEOUT)"
    assert 2 <= late.seconds < 5
    assert all(other.failure is None and other.seconds < late.seconds for other in others)
    killed = int((tmp_path / "pid").read_text())
    assert ends(killed)
    after = scores(reward, *[{}] * 4)  # the worker is replaced
    assert all(result.failure is None and result.value != killed for result in after)


def test_what_a_late_call_had_started_ends_with_it(actor, tmp_path):
    start = "p = subprocess.Popen(['sleep', '1000']); pathlib.Path(record['child']).write_text(str(p.pid)); p.wait()"
    assert score(actor(timeout=1), do=start, child=str(tmp_path / "child")).failure == "timed_out"
    assert ends(int((tmp_path / "child").read_text()))


def test_async_calls_run_at_the_same_time(make):
    code = """
import asyncio
arrived, everybody = 0, asyncio.Event()

async def score(messages, response, record):
    global arrived
    arrived += 1
    if arrived == record["calls"]:
        everybody.set()
    await everybody.wait()
    return arrived
"""
    assert [result.value for result in scores(make(code, timeout=3), *[{"calls": 20}] * 20)] == [20.0] * 20


def test_a_late_async_call_is_cancelled_and_its_worker_stays(make, tmp_path):
    code = """
import asyncio, os, pathlib

async def score(messages, response, record):
    if "late" in record:
        try:
            await asyncio.sleep(1000)
        finally:
            pathlib.Path(record["late"]).touch()
    return os.getpid()
"""
    reward = make(code, timeout=1)
    late, other = scores(reward, {"late": str(tmp_path / "cancelled")}, {})
    assert (late.value, late.failure) == (None, "timed_out")
    assert late.explanation == "no result within 1 seconds (REWARD_FUNCTION_TIMEOUT)"
    assert late.seconds >= 1
    assert other.value == score(reward).value
    assert (tmp_path / "cancelled").exists()


@pytest.mark.parametrize(
    ("harm", "failure"), [("while True: pass", "timed_out"), ("os._exit(3)", "error"), ("os.kill(0, 9)", "error")]
)
def test_an_async_call_that_takes_its_worker_down_takes_no_other_call_with_it(actor, harm, failure):
    bad, *others = scores(actor("async ", timeout=1), {"do": harm}, *[{}] * 3)
    assert (bad.value, bad.failure) == (None, failure)
    assert all(other.failure is None for other in others)


@pytest.mark.parametrize(
    ("harm", "how"),
    [
        ("os._exit(3)", "ended with exit code 3"),
        ("__import__('ctypes').string_at(0)", "was ended by signal 11 (Segmentation fault)"),
        ("os.closerange(3, 100); time.sleep(1000)", "broke its connection"),
    ],
)
def test_the_end_of_a_process_is_the_failure_of_its_call(actor, harm, how):
    reward = actor()
    result = score(reward, do=harm)
    assert (result.value, result.failure) == (None, "error")
    assert result.explanation == f"the process that calls the function {how}"
    assert score(reward).failure is None


def test_what_a_function_prints_goes_to_the_log_and_disturbs_nothing(actor, capfd):
    loud = 'print("{}"); os.write(1, b\'{"call": 1, "value": 7}\\n\'); subprocess.run(["echo", "from a child"])'
    assert score(actor(), do=loud, give="0.5").value == 0.5
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == ["{}", '{"call": 1, "value": 7}', "from a child"]


def test_a_large_record_arrives_whole(healthy):
    text = "三\ud83d\n" * 500_000
    assert score(healthy, text=text, give="len(record['text']) + len(record['text'].splitlines())").value == 2e6


def test_a_plain_function_may_run_an_event_loop(actor):
    assert score(actor(), do="import asyncio; asyncio.run(asyncio.sleep(0))", give="1").value == 1.0


def test_the_kernel_ends_a_worker_first_when_memory_runs_out(healthy):
    assert score(healthy, give="int(pathlib.Path('/proc/self/oom_score_adj').read_text())").value == 1000


def test_modules_beside_the_file_are_found_and_ours_are_not(make, write):
    write("value = 7", "grader.py")
    code = "import grader, importlib.util\n\ndef score(messages, response, record):\n    return grader.value"
    reward = make(code + " - (importlib.util.find_spec('probe_errors') is not None)")
    assert score(reward).value == 7.0


def test_a_caller_that_gives_up_does_no_harm_to_the_next(actor, fifo):
    reward = actor(timeout=1)

    async def give_up():
        first = asyncio.create_task(call(reward, began=str(fifo), do="while True: pass"))
        busy = await asyncio.to_thread(fifo.read_text)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return int(busy), await call(reward)

    busy, second = asyncio.run(give_up())
    assert second.failure is None and second.value != busy


def test_nothing_is_left_after_the_close(actor, fifo):
    reward = actor(workers=2)
    idle = int(score(reward).value)

    async def close_during_a_call():
        running = asyncio.create_task(call(reward, began=str(fifo), do="while True: pass"))
        busy = int(await asyncio.to_thread(fifo.read_text))
        await asyncio.to_thread(reward.close)
        with pytest.raises(asyncio.CancelledError):
            await running
        return busy

    assert ends(asyncio.run(close_during_a_call()), 0) and ends(idle, 0)
    reward.close()


@pytest.mark.parametrize(("state", "body"), [("score", ENDLESS), ("score", BLOCKED), ("idle", "pass")])
def test_workers_end_with_a_process_that_is_killed(write, state, body):
    tell = "print(__import__('os').getpid())"
    at_import, in_call = (tell, "") if state == "idle" else ("", tell)
    spec = write(f"{at_import}\ndef score(messages, response, record):\n    {in_call}{body}")
    command = [sys.executable, "-c", OWNER, spec, state]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as owner:
        worker = int(owner.stderr.readline())
        assert not ends(worker, 0)
        owner.kill()
    assert ends(worker)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "import numpyy",
            "the file cannot be imported: ModuleNotFoundError: No module named 'numpyy' (reward.py, line 1)",
        ),
        ("x = 1\ndef score(", "the file cannot be imported: SyntaxError: '(' was never closed (reward.py, line 2)"),
        ("raise SystemExit", "the file cannot be imported: SystemExit (reward.py, line 1)"),
        ("import os; os._exit(4)", "the process that imports the function ended with exit code 4"),
        ("score = 1\ndef grade(): pass", "the file has no function score; it has grade"),
        ("", "the file has no function score; it has none"),
        ("def score(response): pass", "cannot be called as score(messages=..., response=..., record=...)"),
        ("def score(messages, response, record, key): pass", "missing a required argument: 'key'"),
        ("def score(messages, response, record, /): pass", "cannot be called as score("),
    ],
)
def test_a_function_that_cannot_be_used_is_refused(write, code, reason):
    spec = write(code)
    for use in (check_reward_function, lambda spec: CustomReward(spec, timeout=1, workers=1)):
        with pytest.raises(UserError) as error:
            use(spec)
        assert str(error.value).startswith(f"REWARD_FUNCTION={spec}: ") and reason in str(error.value)
        assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("reward", "must be FILE.py:FUNCTION"),
        ("reward.py", "must be FILE.py:FUNCTION"),
        ("reward.py:", "must be FILE.py:FUNCTION"),
        ("reward.txt:score", "must be FILE.py:FUNCTION"),
        ("reward.py:Rules.score", "must be FILE.py:FUNCTION"),
        ("/nowhere/reward.py:score", "/nowhere/reward.py is not an existing file"),
    ],
)
def test_a_specification_that_names_no_function_is_refused(spec, reason):
    with pytest.raises(UserError) as error:
        check_reward_function(spec)
    assert str(error.value).startswith(f"REWARD_FUNCTION={spec}: ") and reason in str(error.value)


def test_an_import_that_does_not_end_is_given_up(write, tmp_path, monkeypatch):
    monkeypatch.setattr(custom_process, "IMPORT_SECONDS", 1)
    pid = tmp_path / "pid"
    spec = write(f"import os, pathlib\npathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\nwhile True: pass")
    with pytest.raises(UserError, match="importing the file takes more than 1 seconds"):
        check_reward_function(spec)
    assert ends(int(pid.read_text()))


def test_the_check_imports_in_a_process_of_its_own_and_leaves_none(write, tmp_path):
    pid = tmp_path / "pid"
    tell = f"import os, pathlib\npathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
    check_reward_function(write(tell + "def score(messages, response, record): pass"))
    assert int(pid.read_text()) != os.getpid() and ends(int(pid.read_text()), 0)


def test_a_file_that_breaks_during_the_run_is_a_failure(actor, write):
    reward = actor()
    assert score(reward).failure is None
    write("import numpyy")
    assert score(reward, do="os._exit(3)").failure == "error"  # and a new worker imports the file
    result = score(reward)
    assert (result.value, result.failure) == (None, "error")
    assert "No module named 'numpyy'" in result.explanation


def test_the_recipe():
    task = parse_task(custom(record(Random(1))))
    fields = json.loads(task["record"])
    reward = CustomReward(f"{ROOT}/recipes/own_reward/reward.py:score", timeout=PATIENT, workers=1)
    try:
        teacher = visible_answer(task["teacher_responses"][0], marker="")
        assert score(reward, teacher, **fields).value == 1.0
        assert score(reward, f"rest water {fields['remedy']} tea", **fields).value == 0.25
        assert score(reward, "bread", **fields).value == 0.0
    finally:
        reward.close()


BREEDER = """
import os, subprocess, sys

def start():
    return subprocess.Popen(["sleep", "600"], start_new_session=True).pid

imported = start()

def score(messages, response, record):
    pid = start()
    if record.get("hang"):
        open(record["told"], "w").write(f"{imported} {pid}")
        import time
        time.sleep(600)
    return float(pid)
"""


@pytest.mark.parametrize("how", ["in time", "too late"])
def test_nothing_that_the_function_started_is_left(make, tmp_path, how):
    """Not even with a session of its own, in which a group's end does not reach it."""
    reward = make(BREEDER, timeout=1.0 if how == "too late" else 30.0)
    if how == "too late":
        told = tmp_path / "told"
        assert score(reward, hang=True, told=str(told)).failure == "timed_out"
        started = [int(pid) for pid in told.read_text().split()]
    else:
        started = [int(score(reward).value)]
    reward.close()
    assert psutil.wait_procs([psutil.Process(pid) for pid in started if psutil.pid_exists(pid)], timeout=10)[1] == []


def test_what_the_start_looked_at_is_ended_too(tmp_path):
    file = tmp_path / "reward.py"
    file.write_text(BREEDER + f"\nopen({str(tmp_path / 'told')!r}, 'w').write(str(imported))\n")
    check_reward_function(f"{file}:score")
    pid = int((tmp_path / "told").read_text())
    assert not psutil.pid_exists(pid) or psutil.wait_procs([psutil.Process(pid)], timeout=10)[1] == []


@pytest.mark.parametrize(("given", "value"), [("__import__('decimal').Decimal('0.5')", 0.5), ("1e39", None)])
def test_numbers_of_other_kinds_and_sizes(make, given, value):
    assert score(make(f"def score(messages, response, record):\n    return {given}")).value == value


@pytest.mark.parametrize("line", ['{"call": "1"}', "[]", '{"call": 1, "value": "abc"}', "7"])
def test_a_function_that_writes_into_our_socket_ends_its_own_process_only(make, line):
    code = f"""
import os, stat

def score(messages, response, record):
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, {line!r}.encode() + b"\\n")
        except OSError:
            pass
    return 0.5
"""
    began = time.monotonic()
    result = score(make(code, timeout=60.0))
    assert result.failure == "error" and time.monotonic() - began < 30


IN_RAY = """
import asyncio, sys
import psutil, ray
from onepo.rewards.custom import CustomReward

@ray.remote
class Worker:
    def __init__(self, spec):
        self.reward = CustomReward(spec, timeout=30.0, workers=1)

    async def score(self):
        return (await self.reward.score(messages=[], response="", record={})).value

ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
worker = Worker.remote(sys.argv[1])
started = int(ray.get(worker.score.remote()))
assert psutil.pid_exists(started)
ray.shutdown()
print("started", started)
"""


def test_nothing_is_left_by_a_ray_worker_either(tmp_path):
    """Ray kills the children of its workers, the first of which would otherwise be the guard."""
    (tmp_path / "reward.py").write_text(BREEDER)
    command = [sys.executable, "-c", IN_RAY, f"{tmp_path / 'reward.py'}:score"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pid = int(done.stdout.split()[-1])
    assert not psutil.pid_exists(pid) or psutil.wait_procs([psutil.Process(pid)], timeout=15)[1] == []


@pytest.mark.parametrize("sent", ["INT", "HUP"])
def test_signals_of_a_terminal_are_the_owners(make, sent):
    reward = make("def score(messages, response, record):\n    return 0.5")
    for process in psutil.Process().children(recursive=True):
        if "custom_worker.py" in " ".join(process.cmdline()) and os.getpgid(process.pid) == os.getpgrp():
            process.send_signal(getattr(signal, f"SIG{sent}"))
    assert score(reward).value == 0.5
