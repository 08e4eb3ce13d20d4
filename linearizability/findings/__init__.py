"""Findings in releases of Apache Kafka, each in its own folder: a page, and a reproduction."""
