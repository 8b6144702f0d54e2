"""A shell's job control for one job: `python -m tests.dynatui.one_job_shell [&] ARGUMENTS` runs Python with ARGUMENTS.

With `&` the job starts in the background. The shell prints a line when the job stops, and then reads an order in
terminal modes of its own, as shells do. `bg` continues the job in the background, `kill` also ends it by SIGTERM, and
any other line continues it in the foreground. The shell's exit code is the job's.
"""

import os
import signal
import sys
import termios
import tty

STOPPED = "the job is stopped"
IN_BACKGROUND = "&"
_KEYBOARD = 0


def main() -> int:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # so that the shell can become the foreground process again
    usual = termios.tcgetattr(_KEYBOARD)
    in_background = sys.argv[1] == IN_BACKGROUND
    if in_background:
        tty.setcbreak(_KEYBOARD)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        if not in_background:
            os.tcsetpgrp(_KEYBOARD, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, *sys.argv[1 + in_background :]])  # noqa: S606 - the program under test
    while os.WIFSTOPPED(status := os.waitpid(job, os.WUNTRACED)[1]):
        os.tcsetpgrp(_KEYBOARD, os.getpgrp())
        tty.setcbreak(_KEYBOARD)
        print(STOPPED, flush=True)  # noqa: T201 - message of the shell
        order = input()
        if order not in ("bg", "kill"):
            termios.tcsetattr(_KEYBOARD, termios.TCSADRAIN, usual)
            os.tcsetpgrp(_KEYBOARD, job)
        if order == "kill":
            os.killpg(job, signal.SIGTERM)
        os.killpg(job, signal.SIGCONT)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
