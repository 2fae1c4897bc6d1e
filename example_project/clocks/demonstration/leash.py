"""Run a command that does not outlive the process it was started by, however that one ends.

    python leash.py <pid of the owner> <command> ...

Linux kills the command when its owner dies; elsewhere this process stays, looks twice a second, and does it.
"""

import ctypes
import os
import signal
import subprocess
import sys


def main() -> int:
    owner, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() == owner:
            os.execv(command[0], command)
        return 1
    with subprocess.Popen(command) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        while os.getppid() == owner:
            try:
                return process.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
        process.kill()
    return 1


if __name__ == "__main__":
    sys.exit(main())
