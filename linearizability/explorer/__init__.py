"""Explorer: one page that plays a run and needs nothing from outside.

- `page`      the run that is shown, and the page
- `history`   a run of which only the clients' history is known

The simulation's runs are in `simulation.explorer`, TLC's counterexamples in `spec.explorer`.
"""
