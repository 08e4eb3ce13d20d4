"""`python -m tidegauge` is the command `tidegauge`."""

from tidegauge import main

main()
