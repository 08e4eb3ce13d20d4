"""Kafka's security properties as values: keys and certificates, logins, principals of certificates.

The broker reads them for its listeners, and a client of a secured broker for its connections. Nothing here opens a connection.
"""
