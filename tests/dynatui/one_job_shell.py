"""A shell's job control for one job: `python -m tests.dynatui.one_job_shell ARGUMENTS` runs Python with ARGUMENTS.

It prints a line when the job stops, and continues the job in the foreground after a line of input. Its exit code is the
job's.
"""

import os
import signal
import sys

STOPPED = "the job is stopped"


def main() -> int:
    """Runs the job to its end and returns its exit code."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # so that the shell can become the foreground process again
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - the program under test
    while os.WIFSTOPPED(status := os.waitpid(job, os.WUNTRACED)[1]):
        os.tcsetpgrp(0, os.getpgrp())
        print(STOPPED, flush=True)  # noqa: T201 - message of the shell
        input()
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
