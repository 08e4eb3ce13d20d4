"""A master and workers of standalone Spark. Their Python has the libraries, but this project only as it is sent with a job."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from linearizability.targets.ports import free_ports

BASE = "org.apache.spark.deploy"


@dataclass
class Standalone:
    master: str
    environment: dict[str, str]
    """The environment of a process that submits jobs."""
    workers: list[subprocess.Popen[bytes]]
    """Each worker is in one session with its executor."""

    def kill(self, worker: int) -> None:
        os.killpg(self.workers[worker].pid, signal.SIGKILL)


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[Standalone]:
    """Each worker has one core; logs and work are in the folder."""
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port, ui = free_ports(2)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1"}
    master = f"spark://127.0.0.1:{port}"
    commands = [[f"{BASE}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui)]]
    commands += [[f"{BASE}.worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0", master]] * workers
    started = []
    with (folder / "log").open("wb") as log:
        try:
            for command in commands:
                started.append(
                    subprocess.Popen(
                        [spark_class, *command],
                        cwd=folder,
                        env=environment | {"SPARK_WORKER_DIR": str(folder), "SPARK_NO_DAEMONIZE": "1"},
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
                time.sleep(5)
            yield Standalone(master, environment, started[1:])
        finally:
            for process in started:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
