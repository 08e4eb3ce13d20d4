"""Explorer: one page that plays a run, without external resources.

- `page`      the run that is shown, and the page
- `history`   runs with only a clients' history

The simulation's runs are in `simulation.explorer`, TLC's counterexamples in `spec.explorer`.
"""
