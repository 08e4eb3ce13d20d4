"""A producer of transactions: each writes to several partitions, and is committed, or aborted on purpose.

librdkafka does the work, and its class of an error decides, as its documentation requires: a retriable error is tried again, one
that requires an abort aborts the transaction, a fatal one ends this incarnation. The next client
under the same transactional id begins by ending what was left open.

The incarnation also ends, and the next one begins with a new producer epoch, after a transaction that may reach into the next:

- A record was neither acknowledged nor refused. librdkafka 2.16 gives the sequence number of such a record of an aborted
  transaction to the next transaction (findings/reused_sequence).
- Its end took so long that librdkafka may have sent EndTxn twice. It ends transactions as before KIP-890, which leaves the epoch
  as it is, so that the first EndTxn, if it arrives late, ends the next transaction.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from linearizability.history.operations import send
from linearizability.history.recorder import Recorder
from linearizability.workload.client_run import ClientRun
from linearizability.workload.librdkafka import producer_settings
from linearizability.workload.outcomes import proves_nothing_appended
from linearizability.workload.profile import Transacting

TRANSACTION_TIMEOUT_MS = 10_000
"""After this the coordinator aborts what its producer has left; librdkafka gives no record more time than its transaction."""
CALL_WITHIN_S = 5.0
PAUSE_S = 0.1
HELD_SHARE, HELD_S = 0.3, 1.0
"""Some transactions stay open for a while with all their records in the log: who reads them now reads too early."""
GIVEN_UP_WITHIN_S = 2.0
"""An end that takes longer may have been asked for twice: librdkafka waits for an answer for longer than this."""
LAST_TRIES_S = 20.0
"""How long, after the stop sign, the end of the last transaction is still asked for."""


class IncarnationOver(Exception):
    """The producer cannot continue, or was asked to stop; the text says why."""


def run(client_run: ClientRun) -> None:
    """Transact until asked to stop."""
    while not client_run.stopping.is_set():
        with client_run.recorder() as recorder:
            Incarnation(client_run, recorder).run()


class Incarnation:
    """A producer until its end, or its first fatal error: a newer producer has fenced it, or the coordinator refuses it."""

    def __init__(self, client_run: ClientRun, recorder: Recorder) -> None:
        task, does = client_run.task, client_run.task.does
        assert isinstance(does, Transacting)
        self.client_run = client_run
        self.does = does
        self.recorder = recorder
        self.id = f"{task.topic}-{task.client_id}"
        """The transactional id."""
        self.epoch = client_run.counts["incarnations"]
        """The place of this incarnation among those of the id: what an incarnation has written never lies behind the next
        one's."""
        self.period_s = does.records / does.rate_per_s
        self.values = 0
        self.stop_by = 0.0
        self.is_unsure = False
        """Whether a record or an end of the transaction may still take effect."""
        self.producer = Producer(
            producer_settings(task.bootstrap, task.client_id)
            | {
                "transactional.id": self.id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
            }
        )

    def run(self) -> None:
        """One transaction after the other, at the rate while the broker keeps up."""
        try:
            self._insist(self.producer.init_transactions)
            number = 0
            while not self.client_run.stopping.is_set():
                began = time.monotonic()
                self._transact(number)
                number += 1
                self.client_run.report()
                self.client_run.stopping.wait(max(0.0, began + self.period_s - time.monotonic()))
        except IncarnationOver as over:
            self.recorder.mark("note", text=f"{self.id}: {over}")
            self.client_run.stopping.wait(PAUSE_S)

    def _transact(self, number: int) -> None:
        """Begin, send, end. Errors: IncarnationOver."""
        name = f"{self.id}-{self.recorder.process}-{number}"
        self.is_unsure = False
        self.producer.begin_transaction()
        fields = {"txn": name, "producer": self.id, "epoch": self.epoch}
        self.recorder.ok(self.recorder.invoke("begin", **fields))
        for place in range(self.does.records):
            self._send((number + place) % self.client_run.task.partitions, name)
        self._flush()
        if self.client_run.random.random() < HELD_SHARE:
            self.client_run.stopping.wait(self.client_run.random.uniform(0, HELD_S))
        to_be_kept = (number + 1) % self.does.abort_every != 0
        if not (to_be_kept and self._end(name, commit=True)):
            self._end(name, commit=False)
        if self.is_unsure:
            raise IncarnationOver("a record or an end of a transaction may take effect late")

    def _flush(self) -> None:
        """Errors: IncarnationOver where the producer has failed for good, even while it called back (SystemError then)."""
        try:
            self.producer.flush(CALL_WITHIN_S)
        except (KafkaException, SystemError) as raised:
            failed = raised if isinstance(raised, KafkaException) else raised.__cause__
            if not isinstance(failed, KafkaException):
                raise
            raise IncarnationOver(str(failed)) from None

    def _end(self, name: str, *, commit: bool) -> bool:
        """Commit or abort. False when the transaction is spoilt and wants to be aborted. Errors: IncarnationOver."""
        operation = self.recorder.invoke("end", txn=name, commit=commit)
        began = time.monotonic()
        try:
            ended = self._insist(self.producer.commit_transaction if commit else self.producer.abort_transaction)
        except IncarnationOver as over:
            self.recorder.info(operation, error=str(over))
            raise
        self.is_unsure = self.is_unsure or time.monotonic() - began > GIVEN_UP_WITHIN_S
        if ended:
            self.recorder.ok(operation)
            self.client_run.count("committed" if commit else "aborted")
        else:
            self.recorder.info(operation, error="the transaction is spoilt")
        return ended

    def _insist(self, call: Callable[[float], None]) -> bool:
        """Call until it succeeds; False when the transaction must be aborted instead. Errors: IncarnationOver."""
        while True:
            try:
                call(CALL_WITHIN_S)
                return True
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if error.txn_requires_abort():
                    return False
                if not error.retriable():
                    raise IncarnationOver(f"{error.name()}: {error.str()}") from None
                if not self._may_try_again():
                    raise IncarnationOver(f"stopped while it was tried: {error.name()}") from None
                self.client_run.stopping.wait(PAUSE_S)

    def _may_try_again(self) -> bool:
        if not self.client_run.stopping.is_set():
            return True
        self.stop_by = self.stop_by or time.monotonic() + LAST_TRIES_S
        return time.monotonic() < self.stop_by

    # ---- records

    def _send(self, partition: int, name: str) -> None:
        value = self.recorder.process << 32 | self.values
        self.values += 1
        key = f"{self.client_run.task.topic}-{partition}"
        operation = self.recorder.invoke("send", [send(key, value)], txn=name)
        try:
            self.producer.produce(
                self.client_run.task.topic,
                str(value),
                partition=partition,
                on_delivery=partial(self._on_delivery, operation, key, value, name),
            )
        except (BufferError, KafkaException) as error:
            self._complete("fail", operation, [send(key, value)], name, str(error))

    def _on_delivery(
        self, operation: int, key: str, value: int, name: str, error: KafkaError | None, message: Message
    ) -> None:
        if error is None:
            self._complete("ok", operation, [send(key, value, offset=message.offset())], name)
        else:
            outcome = "fail" if proves_nothing_appended(error) else "info"
            self.is_unsure = self.is_unsure or outcome == "info"
            self._complete(outcome, operation, [send(key, value)], name, error.name() or str(error.code()))

    def _complete(
        self, outcome: str, operation: int, mops: Sequence[dict[str, object]], name: str, error: str = ""
    ) -> None:
        self.client_run.count(outcome)
        fields = {"error": error} if error else {}
        getattr(self.recorder, outcome)(operation, list(mops), txn=name, **fields)
