"""The job control of a shell, for one job: `python -m tests.dynatui.one_job_shell ARGUMENTS` runs Python with these.

When the job stops it says so, and a line of input takes it to the foreground again. Ends with the job's exit code.
"""

import os
import signal
import sys

STOPPED = "the job is stopped"


def main() -> int:
    """Runs the job to its end."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # so that the shell may take the terminal back
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - the program under test
    while os.WIFSTOPPED(status := os.waitpid(job, os.WUNTRACED)[1]):
        os.tcsetpgrp(0, os.getpgrp())
        print(STOPPED, flush=True)  # noqa: T201 - what a shell says
        input()
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
