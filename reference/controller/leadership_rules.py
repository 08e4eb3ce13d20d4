"""Whether a replica may lead, is in the ELR, and a change begins a leader epoch: rules over plain values.

Source: KIP-841, KIP-966; org.apache.kafka.controller.PartitionChangeBuilder.
"""

from __future__ import annotations


def may_be_elected(is_alive: bool, is_in_isr: bool, is_isr_empty: bool, is_eligible: bool) -> bool:
    """Whether a replica may lead without data loss: a live member of the ISR, or, if that is empty, of the ELR.

    pre: not (is_in_isr and is_isr_empty)
    post: not __return__ or is_alive
    post: not __return__ or is_in_isr or is_eligible
    post: not __return__ or is_isr_empty or is_in_isr
    """
    return is_alive and (is_in_isr or (is_isr_empty and is_eligible))


def stays_eligible(
    isr_size: int,
    min_isr: int,
    was_in_isr: bool,
    was_eligible: bool,
    is_in_isr: bool,
    lost_its_tail: bool,
    has_replica: bool,
) -> bool:
    """Whether a replica outside of the new ISR is in the new ELR.

    While the ISR is smaller than min.insync.replicas the high watermark does not advance. So a replica that leaves the ISR then
    has all committed records, unless it may have lost the end of its log. A replica dropped by a reassignment leaves the ELR.
    It does not get records that are committed later, with the smaller min.insync.replicas of fewer replicas. A known deviation:
    Kafka 4.3 keeps it in the ELR, and may elect it, without those records, when another reassignment adds it again.

    pre: isr_size >= 0 and min_isr >= 1
    post: not (__return__ and is_in_isr)
    post: not (__return__ and lost_its_tail)
    post: not __return__ or has_replica
    post: not (__return__ and isr_size >= min_isr)
    post: not __return__ or was_in_isr or was_eligible
    """
    has_all = isr_size < min_isr and (was_in_isr or was_eligible) and not lost_its_tail
    return has_all and has_replica and not is_in_isr


def begins_leader_epoch(names_leader: bool, drops_replica: bool) -> bool:
    """Whether a change begins a leader epoch: a leader was elected, or a replica is removed from the partition.

    A smaller ISR alone does not; it did before metadata.version 3.6.

    post: __return__ or not names_leader
    """
    return names_leader or drops_replica
