"""What was found in releases of Apache Kafka, each in a folder of its own: a page, and what shows it."""
