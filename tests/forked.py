"""Work in a fork of this process, which may fail there as it likes."""

from __future__ import annotations

import faulthandler
import os
import resource
import traceback
import warnings
from collections.abc import Callable


def in_a_child(work: Callable[[], object]) -> int:
    """0 where the work came to its end, 1 where it raised, minus the signal where one ended it."""
    with warnings.catch_warnings():  # of threads, which torch may have: none of them is needed
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            faulthandler.disable()  # a fault is what some work is made for
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            work()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
