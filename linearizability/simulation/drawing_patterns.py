"""Fault patterns: several faults, each harmless alone, at the times at which they add up.

Every pattern is a known way in which clusters fail; its details are drawn:
targets, kinds, times, durations. Some faults wait for an action of the specification. None depends on a planted bug.
"""

from __future__ import annotations

from collections.abc import Callable

from linearizability.simulation.choices import Choices
from linearizability.simulation.schedule import METADATA_TOPIC, MOST_REPLICAS, Fault, Topic

LONGEST_MS = 2_000
SETTLED_MS = 150
"""The time after which a leadership that an operator moved has mostly arrived."""

LEADERS_WORDS = ("proposal", "proposal-answer", "metadata")
FOLLOWERS_WORDS = ("fetch", "fetch-answer", "fetch", "fetch-answer", "metadata", "registration", "heartbeat")
"""Kinds of messages (`traffic.py`) that a partition's leader and a follower exchange with others."""

HELD_MS = (1_000, 1_500, 2_000, 500)
"""How long messages are held up. A follower leaves the ISR after 400 ms, a session ends after 600 ms."""


class FaultPatterns:
    """Draws patterns for one cluster."""

    def __init__(self, choices: Choices, nodes: int, topics: list[Topic]) -> None:
        self._choices = choices
        self._nodes = range(1, nodes + 1)
        self._topics = topics

    def draw(self, name: str, at_ms: int) -> list[Fault]:
        """Return the faults of one pattern of PATTERNS, starting at `at_ms`."""
        return PATTERNS[name](self, at_ms)

    # ---- targets

    def _in_some_order(self) -> tuple[int, ...]:
        rest = [*self._nodes]
        count = min(MOST_REPLICAS, len(rest))
        return tuple(rest.pop(self._choices.integer(0, len(rest) - 1)) for _ in range(count))

    def _partition(self) -> tuple[str, int]:
        chosen = self._choices.one_of(self._topics)
        return chosen.name, self._choices.integer(0, chosen.partitions - 1)

    def _lead(self, at_ms: int, place: tuple[str, int], replicas: tuple[int, ...]) -> Fault:
        return Fault(at_ms=at_ms, kind="lead", topic=place[0], partition=place[1], others=replicas)

    def _trap(
        self,
        at_ms: int,
        after: tuple[str, ...],
        kinds: tuple[str, ...],
        for_ms: tuple[int, ...],
        role: str,
        topic: str = "",
    ) -> Fault:
        choices = self._choices
        said = {
            "at_ms": at_ms,
            "after": choices.one_of(after),
            "topic": topic,
            "wait_ms": choices.one_of((0, 0, 1, 4, 20)),
            "kind": choices.one_of(kinds),
            "role": role,
            "node": choices.one_of(self._nodes),
            "for_ms": choices.one_of(for_ms),
            "amount": choices.one_of((10, 100, 400)),
        }
        return Fault.model_validate(said)

    # ---- the patterns

    def blackout(self, at_ms: int) -> list[Fault]:
        """All nodes lose power or are killed, nearly at once, and come back one by one."""
        choices = self._choices
        kind = choices.one_of(("power-loss", "power-loss", "crash"))
        times = [(node, at_ms + choices.integer(0, 3), self._down_ms()) for node in self._nodes]
        return [
            Fault.model_validate({"at_ms": time, "kind": kind, "node": node, "for_ms": down})
            for node, time, down in times
        ]

    def one_after_the_other(self, at_ms: int) -> list[Fault]:
        """Each node in turn stops, crashes or loses power, and comes back."""
        choices = self._choices
        kind = choices.one_of(("stop", "crash", "power-loss"))
        down_ms, gap_ms = self._down_ms(), choices.one_of((800, 200, 1_500))
        return [
            Fault.model_validate(
                {"at_ms": at_ms + turn * (down_ms + gap_ms), "kind": kind, "node": node, "for_ms": down_ms}
            )
            for turn, node in enumerate(self._nodes)
        ]

    def leaders_in_turn(self, at_ms: int) -> list[Fault]:
        """Leadership of one partition moves quickly from node to node, while some of them are cut off from each other."""
        choices = self._choices
        place = self._partition()
        hidden = Fault.model_validate(
            {
                "at_ms": at_ms,
                "kind": choices.one_of(("cut", "cut-in", "cut-out", "slow-node")),
                "node": choices.one_of(self._nodes),
                "role": choices.one_of(("leader", "")),
                "topic": place[0],
                "partition": place[1],
                "others": (choices.one_of(self._nodes),),
                "for_ms": choices.integer(100, 600),
                "amount": choices.integer(20, 200),
            }
        )
        times = sorted(at_ms + choices.integer(0, 400) for _ in range(choices.integer(2, 4)))
        return [hidden, *(self._lead(time, place, self._in_some_order()) for time in times)]

    def there_and_back(self, at_ms: int) -> list[Fault]:
        """A partition's leadership goes to another replica and comes back, while few messages pass between the two."""
        choices = self._choices
        place, replicas = self._partition(), self._in_some_order()
        first, second, *rest = replicas
        injected_ms = at_ms + SETTLED_MS + choices.integer(0, 150)
        gone_ms = injected_ms + choices.integer(0, 100)
        back_ms = gone_ms + choices.one_of((60, 30, 120, 200))
        apart = {
            "at_ms": injected_ms,
            "kind": choices.one_of(("cut", "cut", "cut-in", "slow-node", "uneven")),
            "node": second,
            "others": (first,),
            "for_ms": back_ms - injected_ms + choices.integer(20, 200),
            "amount": choices.one_of((60, 120, 200)),
        }
        faults = [
            self._lead(at_ms, place, replicas),
            Fault.model_validate(apart),
            self._lead(gone_ms, place, (second, first, *rest)),
            self._lead(back_ms, place, replicas),
        ]
        if rest and choices.integer(0, 1):
            late = {
                "kind": choices.one_of(("slow-node", "uneven")),
                "node": rest[0],
                "amount": choices.one_of((60, 120, 200)),
            }
            faults.append(Fault.model_validate(late | {"at_ms": injected_ms, "for_ms": back_ms - injected_ms + 200}))
        return faults

    def deaf_leader(self, at_ms: int) -> list[Fault]:
        """A replica misses records; then their leader receives nothing, while that replica leads for a while."""
        choices = self._choices
        place, replicas = self._partition(), self._in_some_order()
        first, second, *rest = replicas
        apart_ms = at_ms + SETTLED_MS + choices.integer(0, 100)
        deaf_ms = apart_ms + choices.one_of((40, 20, 100))
        gone_ms = deaf_ms + choices.integer(0, 40)
        back_ms = gone_ms + choices.one_of((60, 100, 150))
        apart = {"at_ms": apart_ms, "kind": choices.one_of(("cut", "cut-out")), "node": second, "others": (first,)}
        deaf = {"at_ms": deaf_ms, "kind": choices.one_of(("cut-in", "cut-in", "isolate")), "node": first}
        return [
            self._lead(at_ms, place, replicas),
            Fault.model_validate(apart | {"for_ms": back_ms - apart_ms + choices.integer(20, 120)}),
            Fault.model_validate(deaf | {"for_ms": back_ms - deaf_ms + choices.integer(20, 120)}),
            self._lead(gone_ms, place, (second, first, *rest)),
            self._lead(back_ms, place, replicas),
        ]

    def last_one_standing(self, at_ms: int) -> list[Fault]:
        """One of two replicas goes away. Then the other, which went on alone, loses power and is back first."""
        choices = self._choices
        replicas = self._in_some_order()
        first, second = replicas[:2]
        place = self._partition()
        away_ms = at_ms + SETTLED_MS + choices.integer(0, 300)
        away = {
            "at_ms": away_ms,
            "kind": choices.one_of(("isolate", "pause", "stop")),
            "node": second,
            "for_ms": choices.one_of((LONGEST_MS, 1_500, 2_500)),
        }
        last = {
            "at_ms": away_ms + choices.integer(300, 1_100),
            "kind": choices.one_of(("power-loss", "power-loss", "crash")),
            "node": first,
            "for_ms": choices.one_of((20, 300, 700)),
        }
        return [
            self._lead(at_ms, place, replicas[: choices.one_of((2, 2, 3))]),
            Fault.model_validate(away),
            Fault.model_validate(last),
        ]

    def dies_as_it_commits(self, at_ms: int) -> list[Fault]:
        """A follower leaves the ISR. The leader fails as the ISR changes, and the follower fails again as it returns."""
        choices = self._choices
        replicas = self._in_some_order()
        away_ms = at_ms + SETTLED_MS
        away = {
            "at_ms": away_ms,
            "kind": choices.one_of(("cut", "cut", "pause", "cut-out", "isolate")),
            "node": replicas[-1],
            "others": (replicas[0],),
            "for_ms": choices.one_of((900, 600, 1_400)),
        }
        steps = ("CommitIsr", "CommitIsr", "CommitIsr", "ShrinkIsr")
        kinds = ("crash", "isolate", "crash", "pause", "power-loss")
        return [
            self._lead(at_ms, self._partition(), replicas),
            Fault.model_validate(away),
            self._trap(away_ms + choices.integer(50, 250), steps, kinds, (1_500, 900, 300, LONGEST_MS), "actor"),
            *self._troubled_returns(away_ms + choices.integer(300, 1_000)),
        ]

    def troubled_return(self, at_ms: int) -> list[Fault]:
        """A node goes down, and fails again as it is about to be back in sync."""
        choices = self._choices
        down = {
            "at_ms": at_ms,
            "kind": choices.one_of(("crash", "isolate", "pause", "stop", "power-loss")),
            "node": choices.one_of(self._nodes),
            "for_ms": choices.one_of((700, 300, 1_000)),
        }
        return [Fault.model_validate(down), *self._troubled_returns(at_ms + choices.integer(50, 300))]

    def _troubled_returns(self, at_ms: int) -> list[Fault]:
        kinds = ("crash", "pause", "power-loss", "cut-in", "cut", "isolate")
        return [
            self._trap(
                at_ms, ("ExpandIsr",), kinds, (20, 200, 1, 700), self._choices.one_of(("other", "other", "between"))
            )
            for _ in range(self._choices.integer(1, 3))
        ]

    def contested_election(self, at_ms: int) -> list[Fault]:
        """The active controller fails while the network is slow. Voters and candidates crash and restart in the election."""
        choices = self._choices
        gone = {
            "at_ms": at_ms,
            "kind": choices.one_of(("crash", "isolate", "pause", "stop")),
            "role": "controller",
            "node": choices.one_of(self._nodes),
            "for_ms": choices.one_of((LONGEST_MS, 1_500)),
        }
        faults = [Fault.model_validate(gone)]
        if choices.integer(0, 2):
            faults.append(Fault(at_ms=at_ms, kind="slow", for_ms=2_000, amount=choices.one_of((10, 3, 30, 80))))
        steps = ("BecomeCandidate", "BecomeCandidate", "GrantVote", "BecomeProspective")
        for _ in range(choices.integer(1, 4)):
            trap = self._trap(at_ms, steps, ("crash", "power-loss", "crash"), (1, 1, 20, 100), "actor", METADATA_TOPIC)
            faults.append(trap)
        return faults

    def late_word(self, at_ms: int) -> list[Fault]:
        """A follower has left the ISR. As it comes back, its leader's messages for one purpose are late, and further faults
        follow."""
        choices = self._choices
        replicas = self._in_some_order()
        away_ms = at_ms + SETTLED_MS
        back_ms = away_ms + choices.one_of((700, 550, 1_000))
        away = {
            "at_ms": away_ms,
            "kind": choices.one_of(("cut", "cut", "pause", "isolate", "crash")),
            "node": replicas[-1],
            "others": (replicas[0],),
            "for_ms": back_ms - away_ms,
        }
        late_ms = back_ms - choices.one_of((1, 40, 100))
        late = {
            "at_ms": late_ms,
            "kind": "uneven",
            "node": replicas[0],
            "channel": choices.one_of(("isr", "quorum-fetch", "isr", "quorum-fetch", "heartbeat", "")),
            "for_ms": choices.one_of((1_500, 700)),
            "amount": choices.one_of((300, 700, 1_200)),
        }
        return [
            self._lead(at_ms, self._partition(), replicas),
            Fault.model_validate(away),
            Fault.model_validate(late),
            *(self._interruption(late_ms) for _ in range(choices.integer(1, 3))),
        ]

    def _interruption(self, at_ms: int) -> Fault:
        """Return a fault that is injected as an ISR is proposed."""
        match self._choices.one_of(("an incarnation", "an incarnation", "a way", "an answer")):
            case "an incarnation":
                kinds = ("power-loss", "crash", "power-loss", "isolate", "pause")
                return self._trap(at_ms, ("ExpandIsr",), kinds, (1, 20, 1_500), "other")
            case "a way":
                return self._trap(at_ms, ("ExpandIsr",), ("cut", "cut-out", "cut-in"), (1_500, 700), "between")
            case _:
                return self._trap(at_ms, ("ExpandIsr", "ShrinkIsr"), ("reset",), (1,), "other")

    def words_held_up(self, at_ms: int) -> list[Fault]:
        """A follower has left the ISR. At a step of its return, some messages of leader and follower are held up or lost, and
        one of them or the controller fails. Earlier messages then arrive when they are outdated. one of them, or the
        controller, fails meanwhile: earlier messages arrive when they are no longer true."""
        choices = self._choices
        place, replicas = self._partition(), self._in_some_order()
        back_ms = at_ms + SETTLED_MS + choices.one_of((600, 500, 900))
        away = self._away(place, replicas[-1], replicas[0], at_ms + SETTLED_MS, back_ms)
        role = choices.one_of(("bystander", ""))
        step = choices.one_of(
            ("ExpandIsr", "ExpandIsr", "ExpandIsr", "ExpandIsr", "ExpandIsr", "CommitIsr", "ShrinkIsr", "BecomeLeader")
        )
        armed_ms = back_ms - choices.one_of((1, 40, 100))
        kinds = ("power-loss", "crash", "power-loss", "pause", "power-loss", "isolate")
        target = choices.one_of(("other", "other", "other", "other", "actor", "controller"))
        common_ms = choices.one_of(HELD_MS)
        some = tuple(choices.one_of(FOLLOWERS_WORDS) for _ in range(choices.integer(1, 2)))
        faults = [
            self._lead(at_ms, place, replicas).model_copy(update={"role": role}),
            away.model_copy(update={"role": role, "others": ()}) if role else away,
            *self._held_up("actor", LEADERS_WORDS, armed_ms, step, common_ms),
            *self._held_up("other", some, armed_ms, step, common_ms),
            self._trap(armed_ms, (step,), kinds, (20, 1, 300, 1_000), target),
        ]
        if choices.integer(0, 3) == 3:
            faults.append(self._lead(armed_ms + choices.integer(0, 1_000), place, self._in_some_order()))
        return faults

    def late_succession(self, at_ms: int) -> list[Fault]:
        """The follower that is the next leader returns to the ISR. As its leader proposes that, messages of both are held up,
        and often the follower fails. Then the leader fails until another replica has been elected. follower fails; then the
        leader goes, and stays away until another replica has been elected."""
        choices = self._choices
        place, replicas = self._partition(), self._in_some_order()
        leader, heir = replicas[:2]
        back_ms = at_ms + SETTLED_MS + choices.one_of((500, 450))
        away = self._away(place, heir, leader, at_ms + SETTLED_MS, back_ms)
        role = choices.one_of(("bystander", "bystander", ""))
        armed_ms, step = back_ms - choices.one_of((1, 40, 100)), "ExpandIsr"
        held_ms = choices.one_of((1_000, 1_500, 1_200))
        kind, messages = choices.one_of((("hold", "proposal"), ("lose", "proposal-answer"), ("hold", "proposal")))
        faults = [
            self._lead(at_ms, place, replicas).model_copy(update={"role": role}),
            away.model_copy(update={"role": role, "others": ()}) if role else away,
            self._gate(kind, messages, armed_ms, step, "actor", leader, held_ms),
        ]
        if choices.integer(0, 1):
            faults.append(self._gate("hold", "metadata", armed_ms, step, "actor", leader, held_ms))
        for messages_of_heir in ("fetch", "fetch-answer"):
            if choices.integer(0, 3):
                faults.append(self._gate("hold", messages_of_heir, armed_ms, step, "other", heir, held_ms + 300))
        if kind == "hold" or not choices.integer(0, 2):
            kinds = ("power-loss", "crash", "power-loss", "pause")
            faults.append(self._trap(armed_ms, (step,), kinds, (20, 1, 300), "other"))
        goes_at = choices.one_of(("CommitIsr", "CommitIsr", step) if kind == "hold" else (step, step, "CommitIsr"))
        goes = {
            "at_ms": armed_ms,
            "after": goes_at,
            "wait_ms": choices.integer(held_ms * 2 // 3, held_ms) if goes_at == step else choices.one_of((0, 0, 1, 20)),
            "kind": choices.one_of(("crash", "power-loss", "isolate", "pause")),
            "role": "actor",
            "node": leader,
            "for_ms": choices.one_of((900, 1_200)),
        }
        return [*faults, Fault.model_validate(goes)]

    def late_slices(self, at_ms: int) -> list[Fault]:
        """A leader's answers to followers wait before their records are read from its files. Meanwhile the active controller's
        node comes to lead, and the former leader cuts its log and fills it again; then the answers come to a follower that has
        not yet learned of the new leader."""
        choices = self._choices
        place, replicas = self._partition(), self._in_some_order()
        late_ms = at_ms + SETTLED_MS + choices.integer(50, 250)
        behind_ms = choices.one_of((0, 0, 60))
        gone_ms = late_ms + choices.one_of((40, 20, 90))
        is_cut_off = choices.integer(0, 3) == 3
        away_ms = choices.one_of((800, 1_000)) if is_cut_off else 0
        sent_ms = gone_ms + away_ms + choices.one_of((300, 200, 400))
        of = {"topic": place[0], "partition": place[1]}
        leader = of | {"role": "leader", "node": replicas[0]}
        gone = {"at_ms": gone_ms, "kind": "lead", "role": "controller", "node": replicas[1], "others": replicas}
        if is_cut_off:
            gone = leader | {"at_ms": gone_ms, "kind": "isolate", "for_ms": away_ms}
        unknowing = {
            "at_ms": late_ms,
            "kind": "hold",
            "messages": "metadata",
            "role": "bystander",
            "node": replicas[-1],
        }
        faults = [
            self._lead(at_ms, place, replicas).model_copy(update={"role": "bystander"}),
            Fault.model_validate(leader | {"at_ms": late_ms, "kind": "send-late", "for_ms": sent_ms - late_ms}),
            Fault.model_validate(of | unknowing | {"for_ms": sent_ms - late_ms + choices.one_of((60, 150))}),
            Fault.model_validate(of | gone),
        ]
        if behind_ms:
            heir = {"kind": "hold", "messages": "fetch-answer", "role": "controller", "node": replicas[1]}
            faults.append(
                Fault.model_validate(heir | {"at_ms": late_ms - behind_ms, "for_ms": gone_ms - late_ms + behind_ms})
            )
        return faults

    def _away(self, place: tuple[str, int], node: int, leader: int, at_ms: int, back_ms: int) -> Fault:
        """A follower cannot reach its leader for so long that it leaves the ISR."""
        return Fault.model_validate(
            {
                "at_ms": at_ms,
                "kind": self._choices.one_of(("cut", "cut", "pause", "isolate", "crash")),
                "node": node,
                "others": (leader,),
                "topic": place[0],
                "partition": place[1],
                "for_ms": back_ms - at_ms,
            }
        )

    def _held_up(self, role: str, words: tuple[str, ...], at_ms: int, step: str, common_ms: int) -> list[Fault]:
        """What becomes, from a step on, of some kinds of messages of one role: most are over after a common while."""
        choices = self._choices
        faults: list[Fault] = []
        for messages in words:
            kind = choices.one_of(("hold", "", "lose", "hold"))
            for_ms = choices.one_of((common_ms, common_ms, common_ms, *HELD_MS))
            if kind:
                faults.append(self._gate(kind, messages, at_ms, step, role, choices.one_of(self._nodes), for_ms))
        return faults

    def _gate(self, kind: str, messages: str, at_ms: int, step: str, role: str, node: int, for_ms: int) -> Fault:
        said = {"at_ms": at_ms, "after": step, "kind": kind, "role": role, "messages": messages, "for_ms": for_ms}
        return Fault.model_validate(said | {"node": node})

    def _down_ms(self) -> int:
        return self._choices.one_of((1_000, 20, 300, LONGEST_MS))


PATTERNS: dict[str, Callable[[FaultPatterns, int], list[Fault]]] = {
    "blackout": FaultPatterns.blackout,
    "one after the other": FaultPatterns.one_after_the_other,
    "leaders in turn": FaultPatterns.leaders_in_turn,
    "there and back": FaultPatterns.there_and_back,
    "deaf leader": FaultPatterns.deaf_leader,
    "last one standing": FaultPatterns.last_one_standing,
    "dies as it commits": FaultPatterns.dies_as_it_commits,
    "troubled return": FaultPatterns.troubled_return,
    "contested election": FaultPatterns.contested_election,
    "late word": FaultPatterns.late_word,
    "words held up": FaultPatterns.words_held_up,
    "late succession": FaultPatterns.late_succession,
    "late slices": FaultPatterns.late_slices,
}
"""What is played, by name."""
