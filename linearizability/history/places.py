"""Where histories lie: files and folders, patterns of them, and URIs of what Hadoop's file systems read.

Native runs and stores at a URI of another scheme than `file:` are read by Spark's workers (`pipeline.frames`). Other files
there are copied to this machine before they are read, by the Hadoop of the Spark session: its configuration (`spark.hadoop.*`)
and its jars say which schemes there are.
"""

from __future__ import annotations

import atexit
import glob
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from linearizability.history.topic import HistoryTopic, is_topic

SCHEME = re.compile(r"[a-z][a-z0-9+.\-]+:/")


class NoSuchPlace(ValueError):
    """A place that does not exist or cannot be reached; the text names it."""


def local_paths(texts: Iterable[str]) -> list[Path]:
    """The paths on this machine, and the topics, in their order. Errors: NoSuchPlace; ValueError for a topic's wrong name."""
    return [path for text in texts for path in _paths_of(text)]


def is_on_hadoop(text: str) -> bool:
    """Whether it is the URI of a file system of Hadoop that is not this machine's."""
    return not is_topic(text) and SCHEME.match(text) is not None and not text.startswith("file:")


def _paths_of(text: str) -> list[Path]:
    if is_topic(text):
        HistoryTopic.parse(text)
        return [Path(text)]
    if is_on_hadoop(text):
        return _copied(text)
    name = url2pathname(urlsplit(text).path) if text.startswith("file:") else text
    found = [Path(name)] if Path(name).exists() else [Path(each) for each in sorted(glob.glob(name))]  # noqa: PTH207
    if not found:
        raise NoSuchPlace(f"{text} does not exist")
    return found


def _copied(uri: str) -> list[Path]:
    from py4j.protocol import Py4JJavaError

    from linearizability.pipeline.spark_session import session

    spark: Any = session()
    hadoop = spark._jvm.org.apache.hadoop.fs
    folder = Path(tempfile.mkdtemp(prefix="tidegauge-copied-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        place = hadoop.Path(uri)
        system = place.getFileSystem(spark._jsc.hadoopConfiguration())
        found = list(system.globStatus(place) or ())
        for number, status in enumerate(found):
            into = folder / str(number)
            into.mkdir()
            system.copyToLocalFile(False, status.getPath(), hadoop.Path(into.as_uri()), True)
    except Py4JJavaError as error:
        raise NoSuchPlace(f"{uri} cannot be read: {error.java_exception}") from None
    if not found:
        raise NoSuchPlace(f"{uri} does not exist")
    return [each for number in range(len(found)) for each in (folder / str(number)).iterdir()]
