"""What process 1 of a container owes: signals reach the program, and every orphan is reaped (BR-25).

Where this program is process 1 itself, nobody did that for it: a signal without a handler is ignored there, and what a
handler's own programs leave behind stays in the table of processes for ever. So the program goes on as a child, and
process 1 only forwards and reaps. With `docker run --init`, or in no container, nothing is done.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

FORWARDED = frozenset(
    {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH}
)


def run_below_first_process() -> None:
    """Go on in a child where this is process 1, which then ends with the child's status; else return at once.

    Call it first thing in main, before there is a thread.
    """
    if os.getpid() != 1:
        return
    # Blocked before the fork: a SIGTERM that comes between the two would be lost on a process 1 without a handler.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    child = os.fork()
    if child:
        _forward_and_reap(child)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forward_and_reap(child: int) -> NoReturn:
    """Until `child` has ended: what runs beside it then is ended by the kernel, with process 1."""
    while True:
        heard = signal.sigwaitinfo(FORWARDED | {signal.SIGCHLD})
        if heard.si_signo != signal.SIGCHLD:
            # What a terminal sends (by the kernel, so above 0) goes to its whole group: the child has heard it.
            if heard.si_code <= 0:
                os.kill(child, heard.si_signo)
            continue
        # One SIGCHLD may stand for several.
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)) is not None:
            if ended.si_pid == child:
                is_exit = ended.si_code == os.CLD_EXITED
                os._exit(ended.si_status if is_exit else 128 + ended.si_status)
