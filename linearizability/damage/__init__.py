"""Damaged data folders: whether a broker starts correctly on one, refuses it by name, or silently serves less.

content     what a broker serves, as a consumer, a group and a retrying producer see it
folder      a data folder in memory, its kinds of files, and the damages that befall one
reference   folders of the reference, and starts on them, within this process
kafka       folders of Apache Kafka, and starts on them
trials      which trial damages what, and how its outcome is classed
campaign    `tidegauge bench damage`: many trials, stored, resumed, shown as a table
"""
